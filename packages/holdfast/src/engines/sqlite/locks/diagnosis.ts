/** Findings about the file, its location and this process's way to it. What makes the backend refuse to start is not here. */
import { stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { quote } from '../../../base/errors.ts'
import type { Finding } from '../../../spi.ts'
import type { FileSystemTypeOf } from '../client/index.ts'
import type { Synchronous } from './open.ts'

export interface Diagnosed {
  readonly path: string
  readonly synchronous: Synchronous
  readonly fileSystemTypeOf: FileSystemTypeOf
  /** The version of the library that this process uses, as `3.53.4`. */
  readonly sqliteVersion: string
  /** Why the leases of this process cannot be prolonged; null if they can. */
  readonly problem: string | null
  /** Whether others can wake waiters of this process. */
  readonly hears: boolean
  readonly pollMs: number
}

/** From `magic.h` of Linux. */
const volatileFileSystems = new Map<number, string>([
  [0x01021994, 'a file system in memory (tmpfs)'],
  [0x858458f6, 'a file system in memory (ramfs)'],
  [0x794c7630, 'the layer of a container (overlay)'],
])

export async function diagnose(file: Diagnosed): Promise<readonly Finding[]> {
  const { path, problem, sqliteVersion, pollMs } = file
  const volatile =
    process.platform === 'linux' && volatileFileSystems.get(file.fileSystemTypeOf(dirname(path)))
  const isWritableByAll = await writableByAll(path)
  const findings: (Finding | false)[] = [
    problem !== null && {
      code: 'HOLDFAST_SQLITE_FILE_REPLACED',
      severity: 'danger',
      what: `This process cannot use its file any more: ${problem}.`,
      why: 'Processes that open the path now do not see the leases of this one, and this one renews none of them.',
      fix:
        'End all processes that use the file by a signal or process.exit(), and start them on one path and under one kernel. ' +
        'If the file, its -wal or its -shm was removed or replaced, raise the epoch as well: tokens may have been given out twice.',
    },
    isBefore(sqliteVersion, [3, 51, 3]) && {
      code: 'HOLDFAST_SQLITE_VERSION',
      severity: 'warning',
      what: `This runtime has SQLite ${sqliteVersion}, which is older than 3.51.3.`,
      why:
        'Older releases have the WAL-reset bug, unless the fix was added to them: two processes that write and checkpoint ' +
        'at the same moment can, very rarely, damage the file.',
      fix: 'Use a newer release of the runtime; process.versions.sqlite shows what it has.',
    },
    typeof volatile === 'string' && {
      code: 'HOLDFAST_SQLITE_VOLATILE',
      severity: 'warning',
      what: `${quote(path)} is on ${volatile}: it is gone after a restart of the machine, or with the container.`,
      why:
        'A new file counts tokens from 1. Under the same issuer, guards then refuse the new holders, and could take an ' +
        'old one for newer. Containers that do not share the layer do not exclude each other.',
      fix: 'Put the file on a disk (in a container: on a volume), or raise the epoch whenever the file begins anew.',
    },
    isWritableByAll && {
      code: 'HOLDFAST_SQLITE_PERMISSIONS',
      severity: 'warning',
      what: `Every user of the machine may write or replace ${quote(path)}.`,
      why: 'A user who can write the file can end every lease and take every name.',
      fix: 'Take the right to write away from others: chmod o-w.',
    },
    !file.hears && {
      code: 'HOLDFAST_SQLITE_NO_WAKE_UPS',
      severity: 'note',
      what: 'Other processes cannot wake the waiters of this one: it has no folder of its own for a local socket.',
      why: `A waiter learns of its grant by polling, after up to ${2 * pollMs} ms.`,
      fix: 'Give the user of this process a folder for temporary files that only this user can use (TMPDIR), with a short path.',
    },
    file.synchronous === 'normal' && {
      code: 'HOLDFAST_SQLITE_SYNCHRONOUS',
      severity: 'note',
      what: 'Commits do not wait for the disk (synchronous: normal).',
      why:
        'A power failure may undo the last ones. Leases end with it anyway, and tokens are safe; data that was left for ' +
        'the next holder may be lost.',
      fix: "If that data matters, use synchronous: 'full'.",
    },
  ]
  return findings.filter((finding) => finding !== false)
}

function isBefore(version: string, wanted: readonly number[]): boolean {
  const parts = version.split('.').map(Number)
  const differing = wanted.findIndex((part, index) => part !== (parts[index] ?? 0))
  return differing !== -1 && (parts[differing] ?? 0) < (wanted[differing] ?? 0)
}

const WRITABLE_BY_ALL = 0o002
const STICKY = 0o1000

/** A sticky folder like /tmp lets only the owner of a file replace it. */
async function writableByAll(path: string): Promise<boolean> {
  if (process.platform === 'win32') return false
  const modeOf = (asked: string) =>
    stat(asked).then(
      ({ mode }) => mode,
      () => 0,
    )
  const [file, folder] = [await modeOf(path), await modeOf(dirname(path))]
  return (file & WRITABLE_BY_ALL) !== 0 || (folder & (WRITABLE_BY_ALL | STICKY)) === WRITABLE_BY_ALL
}
