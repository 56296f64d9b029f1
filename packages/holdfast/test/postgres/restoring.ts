/** A database is restored from a backup, under processes that know nothing of it. */
import { type Server, startPostgres } from 'holdfast-lab/servers'
import pg from 'pg'
import { expect } from 'vitest'
import { memoryGuard } from '../../src/guards/memory.ts'
import { createLocker } from '../../src/locker/locker.ts'
import type { Backend } from '../../src/spi.ts'

interface Opening {
  readonly client: pg.Pool
  readonly epoch: number
}

export async function playRestore(open: (options: Opening) => Promise<Backend<'fenced'>>): Promise<void> {
  await using server = await startPostgres()
  await sql(server, 'CREATE DATABASE shop')
  const guard = memoryGuard()
  await holdOnce(server, open, 0, (lease) => guard.run(lease, async () => {}))
  // A backup, as far as the database can tell: every file of it, as it is at this moment.
  await sql(server, 'CREATE DATABASE backup TEMPLATE shop')
  const latest = await holdOnce(server, open, 0, (lease) => guard.run(lease, async () => {}))
  await sql(server, 'DROP DATABASE shop')
  await sql(server, 'ALTER DATABASE backup RENAME TO shop')

  const again = await holdOnce(server, open, 0, async (lease) => {
    await expect(guard.run(lease, async () => {})).rejects.toMatchObject({ code: 'FENCE_STALE' })
  })
  expect(again.issuer).toBe(latest.issuer)
  expect(again.token).toBeLessThanOrEqual(latest.token)

  const raised = await holdOnce(server, open, 1, (lease) => guard.run(lease, async () => {}))
  expect(raised.issuer).toBe(latest.issuer)
  expect(raised.token).toBeGreaterThan(latest.token)
}

type Lease = Awaited<ReturnType<ReturnType<typeof createLocker<'fenced'>>['acquire']>>

/** A process that comes, holds the name, and goes. */
async function holdOnce(
  server: Server,
  open: (options: Opening) => Promise<Backend<'fenced'>>,
  epoch: number,
  body: (lease: Lease) => Promise<void>,
): Promise<Lease['fence']> {
  const url = new URL(server.url)
  url.pathname = 'shop'
  const client = new pg.Pool({ connectionString: url.href, max: 3 })
  const locker = createLocker(await open({ client, epoch }))
  const lease = await locker.acquire('x')
  await body(lease)
  await locker.close()
  await client.end()
  return lease.fence
}

/** A copy needs a database that is not in use; connections of a moment ago may take that long to be gone. */
async function sql(server: Server, text: string): Promise<void> {
  const operator = new pg.Client(server.url)
  await operator.connect()
  await expect
    .poll(
      async () => (await operator.query("SELECT 1 FROM pg_stat_activity WHERE datname = 'shop'")).rowCount,
    )
    .toBe(0)
  await operator.query(text)
  await operator.end()
}
