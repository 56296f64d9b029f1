// Pausing, and killing, processes that a test started itself: a worker that holds a lock, say. Servers have methods
// of the same names.

import type { ChildProcess } from 'node:child_process'
import { killTree, pauseTree, resumeTree } from '../servers/processes.ts'

/** SIGSTOP for a child and all below it; resolves when they stand still. */
export async function pause(child: ChildProcess): Promise<void> {
  await pauseTree(pidOf(child))
}

/** SIGCONT. */
export function resume(child: ChildProcess): void {
  resumeTree(pidOf(child))
}

/** SIGKILL for a child and all below it; resolves when the child is gone. */
export async function kill(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return
  const exited = new Promise((resolve) => child.once('exit', resolve))
  killTree(pidOf(child))
  await exited
}

/** The id of one that has ended may belong to a stranger by now. */
function pidOf(child: ChildProcess): number {
  if (child.pid === undefined || hasEnded(child)) throw new Error('the process does not run')
  return child.pid
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null
}
