/** The document in a PostgreSQL table, in the server that has the leases. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import type { Fence } from '../../../packages/holdfast/src/base/fence.ts'
import { postgresGuard } from '../../../packages/holdfast/src/engines/postgres/guard/postgres-guard.ts'
import type { Addresses, RunningEngine } from '../engines/engine.ts'
import { connect } from '../engines/postgres-client.ts'
import { nowMs } from '../observer.ts'
import {
  ChangedMeanwhileError,
  type Document,
  needFence,
  type OpenResource,
  type Protection,
  type Resource,
  UnknownOutcomeError,
} from './resource.ts'

export const postgresResource: Resource = {
  name: 'postgres',
  async start({ addresses }: RunningEngine) {
    const client = new pg.Client({ connectionString: addresses[0] })
    await client.connect()
    await client.query(`
      CREATE TABLE document (
        id integer PRIMARY KEY CHECK (id = 1), version integer NOT NULL, entries jsonb NOT NULL
      );
      INSERT INTO document VALUES (1, 0, '[]');
    `)
    return {
      addresses,
      isBlocked: () => isStuck(client),
      [Symbol.asyncDispose]: () => client.end(),
    }
  },
  async open([url = '']: Addresses, protection: Protection) {
    return openProtected(connect(url), protection)
  },
}

type Runner = Pick<pg.ClientBase, 'query'>

function openProtected(pool: pg.Pool, protection: Protection): OpenResource {
  const guard = protection === 'guard' ? postgresGuard({ client: pool, name: 'guard' }) : null
  /** One atomic step. With the guard it has the row of the name by then, so its time gives all of them their true order. */
  const step = async <T>(
    fence: Fence | undefined,
    effect: (runner: Runner) => Promise<T>,
  ): Promise<{ at: number; value: T }> => {
    const timed = async (runner: Runner) => ({ at: nowMs(), value: await effect(runner) })
    try {
      return await (guard === null ? timed(pool) : guard.run(needFence(fence), timed))
    } catch (error) {
      throw isHoldfastError(error, 'BACKEND_UNAVAILABLE') ? new UnknownOutcomeError(error) : error
    }
  }
  return {
    guard: guard && { name: guard.name, isTimed: true },
    async read(fence) {
      const { at, value } = await step(fence, readDocument)
      return { ...value, at }
    },
    async write(entries, before, fence) {
      const expected = protection === 'compare-and-set' ? before.version : null
      const { at } = await step(fence, (runner) => writeDocument(runner, entries, expected))
      return { at }
    },
    close: () => pool.end(),
  }
}

async function readDocument(runner: Runner): Promise<Document> {
  const { rows } = await runner.query('SELECT version, entries FROM document')
  return { version: rows[0]?.version, entries: rows[0]?.entries }
}

async function writeDocument(
  runner: Runner,
  entries: readonly string[],
  expected: number | null,
): Promise<void> {
  const { rowCount } = await runner.query(
    'UPDATE document SET entries = $1, version = version + 1 WHERE $2::integer IS NULL OR version = $2',
    [JSON.stringify(entries), expected],
  )
  if (rowCount === 0) throw new ChangedMeanwhileError()
}

const stuckAfterMs = 100

/** Whether a client is stopped in the middle of a transaction, and so blocks its rows for the others. */
async function isStuck(client: pg.Client): Promise<boolean> {
  const open = async (state: string) => {
    const { rows } = await client.query(
      `SELECT pid || ' ' || xact_start AS transaction FROM pg_stat_activity
       WHERE pid <> pg_backend_pid() AND xact_start IS NOT NULL AND state LIKE $1`,
      [state],
    )
    return rows.map(({ transaction }) => String(transaction))
  }
  const before = await open('%')
  if (before.length === 0) return false
  await sleep(stuckAfterMs)
  const after = await open('idle in transaction%')
  return after.some((transaction) => before.includes(transaction))
}
