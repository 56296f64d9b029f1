/** Types that must not compile, and types that must. Checked by the type check of the repository; never run. */
import type { Kysely, Transaction } from 'kysely'
import type pg from 'pg'
import type postgres from 'postgres'
import type { Fence } from '../../../base/fence.ts'
import type { FencedLease, UnfencedLease } from '../../../base/types.ts'
import type { Guard } from '../../../guards/guard.ts'
import {
  type PostgresGuard,
  postgresGuard,
  type SqlTransaction,
  showFence,
  tableFence,
} from './postgres-guard.ts'

declare const pool: pg.Pool
declare const client: postgres.Sql
declare const fence: Fence
declare const lease: FencedLease
declare const unfenced: UnfencedLease
declare const trx: Transaction<{ cells: { key: string } }>
declare const kysely: Kysely<{ cells: { key: string } }>
declare const tx: SqlTransaction

export async function effectsGetTheClientsOwnTransaction(): Promise<void> {
  const onPg: PostgresGuard<pg.PoolClient> = postgresGuard({ client: pool })
  await onPg.run(lease, async (connection) => {
    const { rows } = await connection.query<{ n: number }>('SELECT $1::int AS n', [1])
    return rows[0]?.n
  })
  const onJs = postgresGuard({ client })
  await onJs.run(lease, async (sql) => {
    const rows = await sql<{ n: number }[]>`SELECT ${1}::int AS n`
    await sql.savepoint(async (inner) => inner`SELECT 1`)
    return rows[0]?.n
  })
  const general: Guard<pg.PoolClient> = onPg
  await general.run(fence, () => 5)
}

export async function entersWhateverRunsSql(
  connection: pg.PoolClient,
  sql: postgres.TransactionSql,
): Promise<void> {
  const guard = postgresGuard({ client: pool })
  await guard.enter(connection, lease)
  await guard.enter(sql, lease)
  await guard.enter(trx, lease)
  await guard.enter(kysely, lease)
  await guard.enter({ run: async () => [] }, fence, { once: true })
  // @ts-expect-error something that runs no SQL
  await guard.enter({ go: () => {} }, lease)
  // @ts-expect-error an unfenced lease is no proof
  await guard.enter(connection, unfenced)
}

export async function writesOnly(): Promise<void> {
  const fenced = tableFence({ table: 'accounts', name: 'accounts' })
  const only: 'writes' = fenced.guards
  await fenced.install(pool)
  await showFence(tx, lease)
  // @ts-expect-error a trigger sees no reads, so it is not a Guard (T40, unchecked reads)
  const guard: Guard<SqlTransaction> = fenced
  // @ts-expect-error an unfenced lease is no proof
  await showFence(tx, unfenced)
  void only
  void guard
}
