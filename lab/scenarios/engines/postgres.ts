/** One PostgreSQL server, which keeps the leases and the protected data; where asked for, behind a PgBouncer. */
import { postgres } from '../../../packages/holdfast/src/engines/postgres/locks/index.ts'
import { createClock } from '../../faults/index.ts'
import { startPgBouncer, startPostgres } from '../../servers/index.ts'
import { Doors } from './doors.ts'
import type { Addresses, Engine, RunningEngine, StartOptions } from './engine.ts'
import { connect, urlOf } from './postgres-client.ts'
import { pooling } from './postgres-pooler.ts'
import { freezing, stepping } from './servers.ts'

export const postgresEngine: Engine = {
  name: 'postgres',
  resource: 'postgres',
  protection: 'guard',
  faults: ['clock', 'partition', 'freeze', 'pooler'],
  assumes: { clock: /a step of it forward/ },
  start: startPostgresEngine,
  async open([url = '']: Addresses) {
    const pool = connect(url)
    return { backend: await postgres({ client: pool }), close: () => pool.end() }
  },
}

/** Also for the backend of advisory locks. */
export async function startPostgresEngine({ clients, fault }: StartOptions): Promise<RunningEngine> {
  await using stack = new AsyncDisposableStack()
  const clock = fault === 'clock' ? createClock() : null
  const server = stack.use(await startPostgres(clock === null ? {} : { clock }))
  const bouncer = fault === 'pooler' ? stack.use(await startPgBouncer({ postgres: server })) : null
  const doors = fault === 'partition' ? stack.use(await Doors.open(clients, [server], urlOf)) : null
  const owned = stack.move()
  const { url } = bouncer ?? server
  return {
    addresses: [url],
    addressesFor: (client) => doors?.addressesFor(client) ?? [url],
    faults: {
      ...(clock && { clock: stepping(clock, 'the server') }),
      ...(doors && { partition: doors.partition }),
      ...(bouncer && { pooler: pooling(url) }),
      freeze: freezing([server], 'the server'),
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}
