/**
 * Finds out whether a pooler in transaction mode stands between the client and the server. There, the statements of one
 * connection run in whichever session of the server is free, and locks that belong to a session would be left behind
 * in one that others use next (T50, poolers). It cannot be asked, so it is recognised by what it does: two connections that are
 * open at the same time share a session, or one of them changes it.
 *
 * It may hide for a moment while others keep it busy. So this only serves to refuse early and with the reason: every
 * statement of a session looks itself whether it runs where it should (see `schema.ts`).
 */
import { UnsupportedError } from '../../../base/errors.ts'
import type { DedicatedConnection, PostgresDatabase } from '../client/index.ts'
import { NAME } from './connection.ts'

const LOOKS = 2

export async function refuseTransactionPooler(database: PostgresDatabase): Promise<void> {
  const opened = await Promise.allSettled([database.dedicated(), database.dedicated()])
  const connections = opened.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
  try {
    for (const each of opened) if (each.status === 'rejected') throw each.reason
    const seen = new Map<DedicatedConnection, string>()
    for (let look = 0; look < LOOKS; look++) {
      for (const connection of connections) {
        const [row] = await connection.query('SELECT pg_backend_pid()::text')
        const session = String(row?.[0])
        const isShared = connections.some((other) => other !== connection && seen.get(other) === session)
        if (isShared || (seen.get(connection) ?? session) !== session) throw poolerFound()
        seen.set(connection, session)
      }
    }
  } finally {
    await Promise.all(connections.map((connection) => connection.close()))
  }
}

function poolerFound(): UnsupportedError {
  return new UnsupportedError(
    `${NAME}: the statements of one connection run in several sessions of the server, so there is a pooler in ` +
      'transaction mode in between (PgBouncer with pool_mode = transaction, or the like). A session lock would stay ' +
      'behind in a session that another client uses next. Connect to the server directly, or to a pool in session mode; or ' +
      'use holdfast/postgres or withTransactionLock(), which work behind such a pooler.',
  )
}
