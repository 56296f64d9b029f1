/** PostgreSQL again, with its session advisory locks: there the connection is the lease. */
import { postgresAdvisory } from '../../../packages/holdfast/src/engines/postgres/advisory/index.ts'
import type { Addresses, Engine } from './engine.ts'
import { startPostgresEngine } from './postgres.ts'
import { connect } from './postgres-client.ts'

export const postgresAdvisoryEngine: Engine = {
  name: 'postgres-advisory',
  resource: 'postgres',
  protection: 'guard',
  faults: ['partition', 'freeze'],
  assumes: {},
  start: startPostgresEngine,
  async open([url = '']: Addresses) {
    const pool = connect(url)
    return { backend: await postgresAdvisory({ client: pool }), close: () => pool.end() }
  },
}
