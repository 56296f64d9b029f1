/**
 * Opens the file: checks it, makes an empty one ours, and admits this machine.
 *
 *   path ──checkFile──▶ a file that may be ours ──ensureSchema──▶ ours ──WAL──▶ shared ──admit──▶ open
 *   ours ──of another boot──▶ closed ──removeRemains──▶ without remains
 *
 * Claims in the file end with a restart of the machine: no process survived it, and the monotonic readings of the
 * last boot mean nothing now (T71, restarts of the machine). The first process after a restart removes it. It must be certain that there
 * was one: a container may be shown a boot id of its own, and its neighbours' claims must not be taken for remains.
 * After a restart no process can have the file open, so the removal takes the file for itself alone, and when it cannot
 * get that, it refuses.
 */
import { realpathSync, statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import type { Random } from '../../../base/ids.ts'
import { type FileSystemTypeOf, isBusy, openDatabase } from '../client/index.ts'
import { LOG_TRIGGERS } from './event-log.ts'
import { openingFailure, unusable } from './failures.ts'
import { checkFile } from './file-checks.ts'
import type { MachineIdentity } from './machine.ts'
import { ensureSchema } from './schema.ts'

export type Synchronous = 'normal' | 'full'

export interface OpenOptions {
  readonly path: string
  readonly machine: MachineIdentity
  readonly synchronous: Synchronous
  readonly random: Random
  /** How long to wait for other processes that have the file. */
  readonly patienceMs: number
  readonly fileSystemTypeOf: FileSystemTypeOf
}

export interface OpenFile {
  readonly connection: DatabaseSync
  readonly path: string
  /** Random, made with the file: tells it from every other, also from one that replaces it. */
  readonly fileId: string
  /** The path that does not lead to what is open any more: of the file, its `-wal` or its `-shm`. Null if all of them do. */
  displaced(): string | null
}

/** Opening is synchronous, so it waits for others by sleeping. */
const PAUSE_MS = 20

export function openFile(options: OpenOptions): OpenFile {
  const path = checkFile(options.path, options.fileSystemTypeOf)
  for (let waitedMs = 0; ; ) {
    try {
      const opened = tryToOpen(path, options)
      if (opened !== null) return opened
      removeRemains(path, options.machine)
    } catch (error) {
      if (!isBusy(error) || waitedMs >= options.patienceMs) throw openingFailure(error, path)
      waitedMs += pause(options.random)
    }
  }
}

/** Null: the file is of another boot, and was closed again. */
function tryToOpen(path: string, options: OpenOptions): OpenFile | null {
  const connection = openDatabase(path)
  try {
    connection.exec(`PRAGMA busy_timeout = ${PAUSE_MS}`)
    ensureSchema(connection, path, { fileId: options.random.id(), ...options.machine })
    const mode = connection.prepare('PRAGMA journal_mode = WAL').get()?.journal_mode
    if (mode !== 'wal') throw unusable(path, 'cannot be shared here: SQLite refused its WAL mode.')
    connection.exec(`
      PRAGMA busy_timeout = 0;
      PRAGMA synchronous = ${options.synchronous};
      PRAGMA fullfsync = ON;
      PRAGMA temp_store = MEMORY;
      PRAGMA wal_autocheckpoint = ${PAGES_PER_CHECKPOINT};
    `)
    if (isAdmitted(connection, path, options.machine)) {
      connection.exec(LOG_TRIGGERS)
      return describe(connection, path)
    }
  } catch (error) {
    connection.close()
    throw error
  }
  connection.close()
  return null
}

/** 8 MiB of log. Each checkpoint waits for the disk twice, in the middle of a commit. */
const PAGES_PER_CHECKPOINT = 8_192

function isAdmitted(connection: DatabaseSync, path: string, machine: MachineIdentity): boolean {
  const found = connection.prepare('SELECT boot_id, time_namespace FROM meta').get()
  if (found?.boot_id !== machine.bootId) return false
  if (found.time_namespace === machine.timeNamespaceOffset) return true
  throw unusable(
    path,
    `is used by processes whose monotonic clock is shifted by "${found.time_namespace}" and this one's by ` +
      `"${machine.timeNamespaceOffset}" (time namespaces). They cannot agree on when a lease ends; run all of them in ` +
      'one time namespace, or give them different files.',
  )
}

/** Removes what the last boot left, alone with the file; busy if another process has it open. */
function removeRemains(path: string, { bootId, timeNamespaceOffset }: MachineIdentity): void {
  const connection = openDatabase(path)
  try {
    connection.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON')
    connection.exec('BEGIN IMMEDIATE')
    // Another process may have been faster, and what the file holds now is alive. Closing undoes the transaction.
    if (connection.prepare('SELECT boot_id FROM meta').get()?.boot_id === bootId) return
    // Tokens that were reserved may have been given out by commits that a power failure has undone (T38, restarting tokens; T68, tokens lost in a crash).
    connection
      .prepare(
        'UPDATE meta SET next_token = reserved_token, boot_id = ?, time_namespace = ?, watched_until = NULL, log_id = NULL',
      )
      .run(bootId, timeNamespaceOffset)
    connection.exec(`
      DELETE FROM sessions;
      DELETE FROM holders;
      DELETE FROM waiters;
      DELETE FROM marks;
      DELETE FROM names WHERE data IS NULL;
      UPDATE names SET closed_until = NULL;
      DELETE FROM events;
      COMMIT;
    `)
  } finally {
    connection.close()
  }
}

function describe(connection: DatabaseSync, path: string): OpenFile {
  const fileId = String(connection.prepare('SELECT file_id FROM meta').get()?.file_id)
  // SQLite has followed a link before it named its log.
  const real = realpathSync(path)
  // The read above has created the log, and SQLite keeps it while a connection is open.
  const opened = [path, `${real}-wal`, `${real}-shm`].map((each) => ({ path: each, ...statSync(each) }))
  return {
    connection,
    path,
    fileId,
    displaced() {
      const displaced = opened.find(({ path: each, ino, dev }) => {
        const found = statSync(each, { throwIfNoEntry: false })
        if (found?.ino !== ino || found.dev !== dev) return true
        // A second name for the file means a second log, in which other processes do not see what is held here.
        return each === path && found.nlink !== 1
      })
      return displaced?.path ?? null
    },
  }
}

const sleepCell = new Int32Array(new SharedArrayBuffer(4))

/** Returns how long it slept; not the same in all processes that wait for the file. */
function pause(random: Random): number {
  const ms = PAUSE_MS * (0.5 + random.fraction())
  Atomics.wait(sleepCell, 0, 0, ms)
  return ms
}
