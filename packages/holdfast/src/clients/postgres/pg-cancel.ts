/**
 * Tells the server that nobody waits for the statement of a connection of `pg` any more. Otherwise the process that serves
 * it would go on: behind a lock that is stuck, one call after the other that was cancelled would leave one behind, until
 * the server takes no more connections.
 *
 * What may go wrong: the statement is done before the request arrives, and then the request has no effect, because the
 * connection is nobody's until it has arrived. It does not arrive: the statement goes on, as it would have. It meets the
 * wait for a standby: that ends, and the outcome is unknown, as the caller has been told. A pooler passes it on, for as
 * long as the connection is open.
 *
 * `pg` has a method for it, which asks whether the statement is the active one in a way that `pg` itself warns of. So
 * the request is sent over the inside of a client. Where that looks different, nothing is sent.
 */
import { systemClock } from '../../base/clock.ts'
import type { PgConnection, PgPool } from './types.ts'

/** Whoever waits for a connection of a full pool waits for this as well. */
const CANCEL_WITHIN_MS = 1_000

interface Inside {
  connect(portOrPath: number | string, host?: string): void
  cancel(processId: number, secretKey: number): void
  on(event: 'connect' | 'error' | 'end', listener: () => void): unknown
  readonly stream: { destroy(): void }
}

interface WithInside {
  readonly host?: string
  readonly port?: number
  readonly connection?: Partial<Inside>
}

/** Settles when the server has heard it, or did not in time; never rejects. */
export function cancelStatement(pool: PgPool, connection: PgConnection): Promise<void> {
  const { Client, options } = pool as { Client?: new (options: object) => WithInside; options?: object }
  const { processID, secretKey } = connection as { processID?: unknown; secretKey?: unknown }
  if (Client === undefined || options === undefined) return Promise.resolve()
  if (typeof processID !== 'number' || typeof secretKey !== 'number') return Promise.resolve()
  const { host, port, connection: inside } = new Client(options)
  if (host === undefined || port === undefined || !isUsable(inside)) return Promise.resolve()
  return new Promise((resolve) => {
    const timer = systemClock.setTimer(CANCEL_WITHIN_MS, () => leave())
    const leave = () => {
      timer.cancel()
      inside.stream.destroy()
      resolve()
    }
    inside.on('error', leave)
    // The server answers by ending the connection.
    inside.on('end', leave)
    // Also where connections are encrypted: the server takes this one request before that, as it does from psql.
    inside.on('connect', () => inside.cancel(processID, secretKey))
    if (host.startsWith('/')) inside.connect(`${host}/.s.PGSQL.${port}`)
    else inside.connect(port, host)
  })
}

function isUsable(inside: Partial<Inside> | undefined): inside is Inside {
  const methods = [inside?.connect, inside?.cancel, inside?.on, inside?.stream?.destroy]
  return methods.every((method) => typeof method === 'function')
}
