// One run of the harness: a folder that holds everything of it, and a watchdog that removes all of that when this
// process ends, in whichever way. Should both be killed, the next run finds the folder and does the same.
//
//   holdfast-lab-<uid>/
//     ports/<port>          a link to the run that uses it
//     run-…/owner.json      whose run it is
//     run-…/processes/<n>   "pid start-time" of a server, written by the server's own process before it became one;
//                           the reaper renames the folder before it reads, so that no process can be added any more
//     run-…/redis-1/        a server's private folder: data, configuration, log

import { spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { type Identity, identify, isAlive } from './processes.ts'

const reaper = join(import.meta.dirname, 'reaper.sh')

interface Owner extends Identity {
  /** Process ids mean something within one boot of one machine, as seen from one container. */
  readonly boot: string
  readonly namespace: string
}

export interface Run {
  readonly folder: string
  readonly watchdogPid: number
}

/** All runs of this user; other users need to pass through it, but not to look around. */
export const base = join(tmpdir(), `holdfast-lab-${process.getuid?.() ?? 0}`)

let current: Run | undefined

/** The run of this process; the first call starts it. */
export function currentRun(): Run {
  if (current === undefined) {
    prepareBase()
    sweep()
    current = openRun()
  }
  return current
}

/** A new private folder, which ends with the run at the latest. */
export function newFolder(name: string, user?: { uid: number; gid: number }): string {
  const folder = mkdtempSync(join(currentRun().folder, `${name}-`))
  if (user) chownSync(folder, user.uid, user.gid)
  return folder
}

export function removeFolder(folder: string): void {
  // A process that has just been killed may still have a file in the making.
  rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
}

function prepareBase(): void {
  mkdirSync(base, { recursive: true, mode: 0o711 })
  if (statSync(base).uid !== process.getuid?.()) throw new Error(`${base} belongs to another user`)
  chmodSync(base, 0o711)
  mkdirSync(join(base, 'ports'), { recursive: true })
}

function openRun(): Run {
  // It gets the name by which others find it only when it says whose it is.
  const unnamed = mkdtempSync(join(base, 'new-'))
  const folder = unnamed.replace(/new-([^/]*)$/, 'run-$1')
  chmodSync(unnamed, 0o711)
  mkdirSync(join(unnamed, 'processes'))
  writeFileSync(join(unnamed, 'owner.json'), JSON.stringify(self()))
  renameSync(unnamed, folder)

  const watchdog = spawn('sh', [reaper, folder, '--when-stdin-ends'], {
    cwd: '/',
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  watchdog.unref()
  // A handle that is not used must not keep this process alive; its end still closes the pipe.
  ;(watchdog.stdin as unknown as { unref(): void }).unref()
  if (watchdog.pid === undefined) throw new Error('the watchdog of the harness did not start')
  return { folder, watchdogPid: watchdog.pid }
}

/** Ends what earlier runs left behind: only those whose owner is provably gone. */
export function sweep(): void {
  for (const name of readdirSync(base).filter((each) => each.startsWith('run-'))) {
    if (isAbandoned(join(base, name))) spawnSync('sh', [reaper, join(base, name)], { cwd: '/' })
  }
  for (const name of readdirSync(base).filter((each) => each.startsWith('new-'))) {
    if (isOld(join(base, name))) removeFolder(join(base, name))
  }
  const runs = new Set(readdirSync(base))
  for (const port of readdirSync(join(base, 'ports'))) {
    const claim = join(base, 'ports', port)
    if (!runs.has(basename(readClaim(claim)))) rmSync(claim, { force: true })
  }
}

function isAbandoned(folder: string): boolean {
  let owner: Owner
  try {
    owner = JSON.parse(readFileSync(join(folder, 'owner.json'), 'utf8'))
  } catch {
    // Being removed at this moment, by its watchdog or by another sweep.
    return false
  }
  const me = self()
  if (owner.boot !== me.boot) return true
  // From another container its processes cannot be judged.
  return owner.namespace === me.namespace && !isAlive(owner)
}

/** A run is without a name for a moment only, unless it was killed in that moment. */
function isOld(folder: string): boolean {
  const age = Date.now() - (statSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? Date.now())
  return age > 60_000
}

function self(): Owner {
  const identity = identify(process.pid)
  if (identity === null) throw new Error('the harness needs Linux: there is no /proc here')
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  return { ...identity, boot, namespace: readlinkSync('/proc/self/ns/pid') }
}

function readClaim(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}
