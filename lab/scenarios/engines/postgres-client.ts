/** The client that a lab process speaks to PostgreSQL with, as a user would have it. */
import pg from 'pg'

export function connect(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url })
  // Servers are stopped and cut off here on purpose; a caller that waits for an answer gets its own error.
  pool.on('error', () => {})
  return pool
}

export function urlOf({ host, port }: { readonly host: string; readonly port: number }): string {
  return `postgres://postgres@${host}:${port}/postgres`
}
