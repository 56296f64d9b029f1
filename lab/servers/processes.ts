// Processes of this machine as the kernel shows them: who they are, and whom they started.

import { readdirSync, readFileSync } from 'node:fs'
import { waitFor } from './wait.ts'

/** A process id is given again some day; together with the start time it is not. */
export interface Identity {
  readonly pid: number
  /** In clock ticks since the machine started. */
  readonly started: string
}

interface Status {
  readonly pid: number
  readonly state: string
  readonly parent: number
  readonly started: string
}

export function identify(pid: number): Identity | null {
  const status = statusOf(pid)
  return status && { pid, started: status.started }
}

export function isAlive({ pid, started }: Identity): boolean {
  const status = statusOf(pid)
  return status !== null && status.started === started && status.state !== 'Z'
}

/** The process and everything below it, parents first. */
export function treeOf(root: number): number[] {
  const everybody = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => statusOf(Number(name)))
    .filter((status) => status !== null)
  const tree = [root]
  for (const pid of tree) {
    tree.push(...everybody.filter(({ parent }) => parent === pid).map((child) => child.pid))
  }
  return tree
}

/** Stops a process and all below it. Resolves when none of their threads runs any more. */
export async function pauseTree(root: number): Promise<void> {
  const stopped = new Set<number>()
  // Parents first, so that each new look finds fewer who can still start children.
  for (let found = treeOf(root); found.some((pid) => !stopped.has(pid)); found = treeOf(root)) {
    for (const pid of found) {
      signal(pid, 'SIGSTOP')
      stopped.add(pid)
    }
  }
  await waitFor(`process ${root} to stop`, async () => [...stopped].every(isStopped), { everyMs: 1 })
}

export function resumeTree(root: number): void {
  for (const pid of treeOf(root).reverse()) signal(pid, 'SIGCONT')
}

/** SIGKILL for a process and all below it, at once: as when the machine is switched off. */
export function killTree(root: number): void {
  signal(root, 'SIGSTOP')
  for (const pid of treeOf(root)) signal(pid, 'SIGKILL')
}

export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** The kernel stops threads one by one, so the process is stopped when the last of them is. */
function isStopped(pid: number): boolean {
  try {
    const states = readdirSync(`/proc/${pid}/task`).map((task) => statusOf(pid, task)?.state)
    return states.every((state) => state === undefined || 'TtZX'.includes(state))
  } catch {
    return true
  }
}

function statusOf(pid: number, task?: string): Status | null {
  let text: string
  try {
    text = readFileSync(task === undefined ? `/proc/${pid}/stat` : `/proc/${pid}/task/${task}/stat`, 'utf8')
  } catch {
    return null
  }
  // The name stands in parentheses and may itself contain some.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const [state = '', parent = ''] = fields
  return { pid, state, parent: Number(parent), started: fields[19] ?? '' }
}
