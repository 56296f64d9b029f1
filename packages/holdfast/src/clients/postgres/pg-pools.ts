/** The user's pool, and pools beside it with the same settings, for connections that must not be taken from it. */
import { stateOf } from './pg-statement.ts'
import type { PgPool } from './types.ts'

const ignore = () => {}

/** Pools that have our listeners, which stay for as long as the pool lives. */
const listenedTo = new WeakSet<PgPool>()

/**
 * A pool reports the end of an idle connection as an event, and opens another when it needs one. The event can also come
 * before a caller has its connection, when the server's last word arrives together with its first.
 */
export function listenForErrors(pool: PgPool): void {
  if (listenedTo.has(pool)) return
  listenedTo.add(pool)
  pool.on('error', ignore)
  pool.on('acquire', (connection) => void stateOf(connection))
}

/** Null: this pool does not tell its options, so no other can be made. */
export function poolBeside(pool: PgPool, changes: object): PgPool | null {
  const { options } = pool
  if (typeof options !== 'object' || options === null) return null
  const Pool = pool.constructor as new (options: object) => PgPool
  // `pg` hides the password from enumeration.
  const password = 'password' in options && { password: options.password }
  const own = new Pool({ ...options, ...password, ...changes })
  listenForErrors(own)
  return own
}
