/**
 * Locks for all processes of one machine, in one file, with nothing to install or to run.
 *
 * ```ts
 * const locker = createLocker(sqlite({ path: '/var/lib/shop/locks.db' }))
 * ```
 */
import type { Backend } from '../../../spi.ts'
import { openSqlite, type SqliteOptions } from './assemble.ts'

export type { SqliteOptions } from './assemble.ts'
export type { MachineIdentity } from './machine.ts'
export type { Synchronous } from './open.ts'

/** Opens the file at once, and throws if it cannot be used. */
export function sqlite(options: SqliteOptions): Backend<'fenced'> {
  return openSqlite(options)
}
