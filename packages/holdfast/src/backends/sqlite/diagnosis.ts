/** Findings about the file, its location and this process's way to it. What makes the backend refuse to start is not here. */
import { stat, statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { hasSharedZero } from '../../base/clock.ts'
import { quote } from '../../base/errors.ts'
import type { Finding } from '../../spi.ts'
import type { FileSystemTypeOf } from './file-checks.ts'
import type { Synchronous } from './open.ts'

export interface Diagnosed {
  readonly path: string
  readonly synchronous: Synchronous
  readonly fileSystemTypeOf: FileSystemTypeOf
  /** Of the library that this process uses, as `3.53.4`. */
  readonly sqliteVersion: string
  /** Why the leases of this process cannot be prolonged; null if they can. */
  readonly problem: string | null
  /** Whether others can wake waiters of this process. */
  readonly hears: boolean
  readonly pollMs: number
}

const MIB = 2 ** 20
const LEAST_FREE_BYTES = 64 * MIB
/** Checkpoints begin at 8 MiB; a log that is much longer has not been emptied for a while. */
const LONG_LOG_BYTES = 64 * MIB

/** From `magic.h` of Linux. */
const volatileFileSystems = new Map<number, string>([
  [0x01021994, 'a file system in memory (tmpfs)'],
  [0x858458f6, 'a file system in memory (ramfs)'],
  [0x794c7630, 'the layer of a container (overlay)'],
])

export async function diagnose(file: Diagnosed): Promise<readonly Finding[]> {
  const findings = [inPlace(file), version(file), volatile(file), oneProcess(), wakeUps(file), power(file)]
  findings.push(...(await Promise.all([permissions(file), diskSpace(file), longLog(file)])))
  return findings.filter((finding) => finding !== null)
}

function inPlace({ problem }: Diagnosed): Finding | null {
  if (problem === null) return null
  return {
    code: 'HOLDFAST_SQLITE_FILE_REPLACED',
    severity: 'danger',
    what: `This process cannot use its file any more: ${problem}.`,
    why: 'Processes that open the path now do not see the leases of this one, and this one renews none of them.',
    fix: 'Restart all processes that use the file, on one path and under one kernel.',
  }
}

function version({ sqliteVersion }: Diagnosed): Finding | null {
  if (!isBefore(sqliteVersion, [3, 51, 3])) return null
  return {
    code: 'HOLDFAST_SQLITE_VERSION',
    severity: 'warning',
    what: `This runtime has SQLite ${sqliteVersion}, which is older than 3.51.3.`,
    why:
      'Older releases have the WAL-reset bug, unless the fix was added to them: two processes that write and checkpoint ' +
      'at the same moment can, very rarely, damage the file.',
    fix: 'Use a newer release of the runtime; process.versions.sqlite shows what it has.',
  }
}

function isBefore(version: string, wanted: readonly number[]): boolean {
  const parts = version.split('.').map(Number)
  const differing = wanted.findIndex((part, index) => part !== (parts[index] ?? 0))
  return differing !== -1 && (parts[differing] ?? 0) < (wanted[differing] ?? 0)
}

function volatile({ path, fileSystemTypeOf }: Diagnosed): Finding | null {
  if (process.platform !== 'linux') return null
  const kind = volatileFileSystems.get(fileSystemTypeOf(dirname(path)))
  if (kind === undefined) return null
  return {
    code: 'HOLDFAST_SQLITE_VOLATILE',
    severity: 'warning',
    what: `${quote(path)} is on ${kind}: it is gone after a restart of the machine, or with the container.`,
    why:
      'A new file counts tokens from 1. Under the same issuer, guards then refuse the new holders, and could take an ' +
      'old one for newer. Containers that do not share the layer do not exclude each other.',
    fix: 'Put the file on a disk (in a container: on a volume), or raise the epoch whenever the file begins anew.',
  }
}

function oneProcess(): Finding | null {
  if (hasSharedZero) return null
  return {
    code: 'HOLDFAST_SQLITE_ONE_PROCESS',
    severity: 'note',
    what: 'On this runtime one process has the file at a time.',
    why: 'Its monotonic clock counts from the start of the process, so processes cannot agree on when a lease ends.',
    fix: 'Use Node, or an engine on a server, if several processes must exclude each other.',
  }
}

function wakeUps({ hears, pollMs }: Diagnosed): Finding | null {
  if (hears) return null
  return {
    code: 'HOLDFAST_SQLITE_NO_WAKE_UPS',
    severity: 'note',
    what: 'Other processes cannot wake the waiters of this one: it has no folder of its own for a local socket.',
    why: `A waiter learns of its grant by polling, after up to ${2 * pollMs} ms.`,
    fix: 'Give the user of this process a folder for temporary files that only this user can use (TMPDIR), with a short path.',
  }
}

function power({ synchronous }: Diagnosed): Finding | null {
  if (synchronous === 'full') return null
  return {
    code: 'HOLDFAST_SQLITE_SYNCHRONOUS',
    severity: 'note',
    what: 'Commits do not wait for the disk (synchronous: normal).',
    why:
      'A power failure may undo the last ones. Leases end with it anyway, and tokens are safe; data that was left for ' +
      'the next holder may be lost.',
    fix: "If that data matters, use synchronous: 'full'.",
  }
}

const WRITABLE_BY_ALL = 0o002
const STICKY = 0o1000

async function permissions({ path }: Diagnosed): Promise<Finding | null> {
  if (process.platform === 'win32') return null
  const [file, folder] = await Promise.all([ifPossible(stat(path)), ifPossible(stat(dirname(path)))])
  const isOpen = ((file?.mode ?? 0) & WRITABLE_BY_ALL) !== 0
  // In a folder like /tmp only the owner of a file may replace it.
  const isReplaceable = ((folder?.mode ?? 0) & (WRITABLE_BY_ALL | STICKY)) === WRITABLE_BY_ALL
  if (!isOpen && !isReplaceable) return null
  return {
    code: 'HOLDFAST_SQLITE_PERMISSIONS',
    severity: 'warning',
    what: `Every user of the machine may ${isOpen ? 'write' : 'replace'} ${quote(path)}.`,
    why: 'Who can write the file can end every lease and take every name.',
    fix: 'Take the right to write away from others: chmod o-w.',
  }
}

async function diskSpace({ path }: Diagnosed): Promise<Finding | null> {
  const found = await ifPossible(statfs(dirname(path)))
  const freeBytes = found === null ? Infinity : found.bavail * found.bsize
  if (freeBytes >= LEAST_FREE_BYTES) return null
  return {
    code: 'HOLDFAST_SQLITE_DISK_SPACE',
    severity: 'warning',
    what: `The disk of ${quote(path)} has ${Math.floor(freeBytes / MIB)} MiB left.`,
    why: 'On a full disk nothing can be renewed or released: leases are lost at their deadlines.',
    fix: 'Make room, or move the file.',
  }
}

async function longLog({ path }: Diagnosed): Promise<Finding | null> {
  const bytes = (await ifPossible(stat(`${path}-wal`)))?.size ?? 0
  if (bytes < LONG_LOG_BYTES) return null
  return {
    code: 'HOLDFAST_SQLITE_LONG_LOG',
    severity: 'warning',
    what: `The log of the file, ${quote(`${path}-wal`)}, has grown to ${Math.floor(bytes / MIB)} MiB.`,
    why: 'It is emptied only when no reader needs it: a program keeps a transaction open, and every read becomes slower.',
    fix: 'Find the program (fuser names it), and end its transaction.',
  }
}

async function ifPossible<T>(asked: Promise<T>): Promise<T | null> {
  return asked.catch(() => null)
}
