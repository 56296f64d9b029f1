/** A pooler in transaction mode: how it breaks sessions, and what the library says about it. */
import pg from 'pg'
import { isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import { postgresAdvisory } from '../../../packages/holdfast/src/engines/postgres/advisory/index.ts'
import type { Faults } from './engine.ts'
import { connect } from './postgres-client.ts'

export function pooling(url: string): Faults['pooler'] {
  return {
    async mixesSessionsUp() {
      const clients = [new pg.Client(url), new pg.Client(url)]
      try {
        const taken: unknown[] = []
        for (const client of clients) {
          await client.connect()
          const { rows } = await client.query('SELECT pg_try_advisory_lock(42) AS taken')
          taken.push(rows[0]?.taken)
        }
        return taken.every((each) => each === true)
      } finally {
        await Promise.all(clients.map((client) => client.end()))
      }
    },
    async refusal() {
      const pool = connect(url)
      try {
        const backend = await postgresAdvisory({ client: pool })
        await backend[Symbol.asyncDispose]()
        return null
      } catch (error) {
        if (isHoldfastError(error, 'UNSUPPORTED')) return error.message
        throw error
      } finally {
        await pool.end()
      }
    },
  }
}
