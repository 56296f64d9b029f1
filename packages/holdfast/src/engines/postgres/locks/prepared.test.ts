import { type Server, startPgBouncer, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createLocker } from '../../../locker/locker.ts'
import { openLocker } from '../../../open.ts'
import { type PostgresOptions, postgres } from './index.ts'

const names = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'holdfast_%'"

/** Locks and gives back over a pool of so many connections, then looks at what each of them has prepared. */
async function prepared(url: string, options: Partial<PostgresOptions> = {}, max = 1): Promise<number[]> {
  const client = new pg.Pool({ connectionString: url, max })
  const locker = createLocker(await postgres({ client, ...options }))
  try {
    for (let turn = 0; turn < 10; turn++) {
      const leases = await Promise.all([1, 2, 3].map((index) => locker.acquire(`x${index}`)))
      const lease = await locker.acquire('alone')
      for (const each of [...leases, lease]) expect(await each.release()).toBe('released')
    }
    const connections = await Promise.all(Array.from({ length: max }, () => client.connect()))
    const counts: number[] = []
    for (const connection of connections) {
      counts.push((await connection.query(names)).rows.length)
      connection.release()
    }
    return counts
  } finally {
    await locker.close()
    await client.end()
  }
}

describe.runIf(wanted('postgres'))('prepared statements of pg', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  test('a connection keeps the frequent ones, unless told otherwise', async () => {
    const [kept = 0] = await prepared(server.url)
    expect(kept).toBeGreaterThanOrEqual(3)
    expect(await prepared(server.url, { prepare: false })).toEqual([0])
    const wrong = { prepare: 'yes' as unknown as boolean }
    await expect(prepared(server.url, wrong)).rejects.toMatchObject({ argument: 'prepare' })
  })

  test('the URL of a locker can say so', async () => {
    const operator = new pg.Client(server.url)
    await operator.connect()
    await prepared(server.url)
    await operator.query(`CREATE TABLE public.seen (names bigint);
      CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.seen SELECT count(*) FROM (${names}) AS known; RETURN NULL; END $$;
      CREATE TRIGGER see AFTER INSERT ON holdfast.holders EXECUTE FUNCTION public.see()`)
    const seenBy = async (parameters: string) => {
      const locker = await openLocker(`${server.url}${parameters}`)
      await (await locker.acquire('x')).release()
      await locker.close()
      const { rows } = await operator.query('DELETE FROM public.seen RETURNING names::int > 0 AS has_names')
      return rows
    }
    expect(await seenBy('')).toEqual([{ has_names: true }])
    expect(await seenBy('?prepare=false')).toEqual([{ has_names: false }])
    await expect(openLocker(`${server.url}?prepare=no`)).rejects.toMatchObject({ argument: 'prepare' })
    await operator.query('DROP TRIGGER see ON holdfast.holders')
    await operator.end()
  })

  test.runIf(wanted('pgbouncer'))(
    'behind a pooler that does not keep them, also for others, every call is made without them',
    async () => {
      const settings = { default_pool_size: '3', server_round_robin: '1' }
      await using bouncer = await startPgBouncer({ postgres: server, settings })
      // Each finds names that others have left in the sessions of the server.
      for (let process = 0; process < 3; process++)
        await prepared(bouncer.url, { namespace: `${process}` }, 4)
    },
  )

  test('a connection that forgets them while it is in use costs no call', async () => {
    const client = new pg.Pool({ connectionString: server.url, max: 1 })
    const locker = createLocker(await postgres({ client }))
    for (let turn = 0; turn < 3; turn++) {
      const lease = await locker.acquire('x')
      await client.query('DEALLOCATE ALL')
      expect(await lease.release()).toBe('released')
    }
    await locker.close()
    await client.end()
  })
})
