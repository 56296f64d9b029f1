/** Puts a backend together: checks its options, opens the file, and describes what it promises. */

import { type Clock, systemClock } from '../../../base/clock.ts'
import { defaults, limits } from '../../../base/defaults.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkText } from '../../../base/names.ts'
import { checkKnownOptions, checkNumber, checkOneOf } from '../../../base/options.ts'
import { checkIdentity } from '../../../kit/backend-kit.ts'
import { describeInfo } from '../../../kit/info.ts'
import { type FileSystemTypeOf, fileSystemTypeOf } from '../client/index.ts'
import { SqliteBackend } from './backend.ts'
import { Connection } from './connection.ts'
import { asSeenBy, type MachineIdentity, ownMachine } from './machine.ts'
import { openFile, type Synchronous } from './open.ts'

export interface SqliteOptions {
  /** A file of its own on a local disk, in a folder that exists. It is created if it does not exist. */
  readonly path: string
  readonly clock?: Clock
  readonly random?: Random
  readonly namespace?: string
  /** Default: `sqlite:<id of the file>/<namespace>`. */
  readonly issuer?: string
  /** The top bits of every token. After you have restored a backup, raise it, for example from 0 to 1. Default 0. */
  readonly epoch?: number
  /**
   * `normal` (the default): a commit is safe from the end of any process. `full`: it is also on the disk before it is
   * reported, which costs a wait for the disk each time; what a power failure undoes is then at most what no caller was
   * told. Tokens are safe from a power failure in both.
   */
  readonly synchronous?: Synchronous
  /**
   * How often a waiter looks by itself, in case a wake-up was lost. Up to as much again is added at random: the default 200 means
   * every 200 to 400 ms.
   */
  readonly pollMs?: number
  /** Which start of which machine this is; found out on Linux and macOS. */
  readonly machine?: MachineIdentity
}

/** Further parts that tests may replace. */
export interface Surroundings {
  readonly fileSystemTypeOf?: FileSystemTypeOf
  readonly socketFolder?: string
  /** How long opening waits for other processes that have the file; it blocks this one. */
  readonly patienceMs?: number
}

/** As `sqlite`, for tests and measurements: with a view of what it does. */
export function openSqlite(options: SqliteOptions, surroundings: Surroundings = {}): SqliteBackend {
  checkKnownOptions('sqlite options', options, known)
  const path = checkPath((options as SqliteOptions | undefined)?.path)
  const { clock = systemClock, random = systemRandom } = options
  const { namespace, issuer, epoch } = checkIdentity(options)
  const synchronous = checkOneOf('synchronous', options.synchronous ?? 'normal', ['normal', 'full'])
  const pollMs = checkNumber('pollMs', options.pollMs ?? defaults.pollMs, { min: 1, max: 60_000 })
  const machine = asSeenBy(
    clock,
    options.machine === undefined ? ownMachine() : checkMachine(options.machine),
  )
  const common = {
    path,
    clock,
    random,
    machine,
    synchronous,
    namespace,
    pollMs,
    ...defaultSurroundings,
    ...surroundings,
  }
  const file = openFile(common)
  const info = describeInfo({
    namespace,
    epoch,
    pollMs,
    issuer: issuer ?? `sqlite:${file.fileId}/${namespace}`,
    name: 'sqlite',
    scope: 'machine',
    fencing: 'fenced',
    prolongation: 'committed',
    assumptions: [
      'All clients that must exclude each other are processes of one machine, under one kernel that shows them the same boot id ' +
        'and the same monotonic clock, and open the same file under the same path.',
      'The file is on a local file system whose locks and shared memory mappings work, and no program removes or replaces ' +
        'it, or its -wal and -shm files, while it is in use.',
      'What was written is lost only when the machine restarts, and what the disk has confirmed is not lost even then.',
      'A restart of the machine ends every lease, lock-delay and hold-at-least at once: no process has survived it.',
      'On Bun and Deno, whose monotonic clocks count from the start of the process, one process has the file at a time. ' +
        'A second one is refused.',
      'After the file was restored from a backup or copied, the epoch is raised before it is used under the same issuer.',
    ],
    confirmed: 'A keep-alive whose transaction has been committed, counted from before it was sent.',
  })
  return new SqliteBackend(new Connection({ ...common, file }), info, random)
}

const defaultSurroundings = {
  fileSystemTypeOf,
  /** A healthy neighbour needs milliseconds; right after a restart of the machine, many may come at once. */
  patienceMs: 3_000,
}

const known = ['path', 'clock', 'random', 'namespace', 'issuer', 'epoch', 'synchronous', 'pollMs', 'machine']

function checkPath(path: unknown): string {
  if (typeof path !== 'string' || path === '' || path.includes('\0'))
    throw new InvalidArgumentError('path', 'must be the path of a file, as a string.')
  if (path === ':memory:')
    throw new InvalidArgumentError(
      'path',
      "must be a file; for locks within one process use 'holdfast/memory'.",
    )
  return path
}

function checkMachine({ bootId, timeNamespaceOffset }: MachineIdentity): MachineIdentity {
  return {
    bootId: checkText('machine.bootId', bootId, limits.nameBytes),
    timeNamespaceOffset: checkText('machine.timeNamespaceOffset', timeNamespaceOffset, limits.nameBytes),
  }
}
