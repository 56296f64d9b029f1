import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { startProxy } from 'holdfast-lab/faults'
import { type PooledPostgres, startPooledPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type IdempotentWorld, idempotentCases } from '../../../../test/idempotent-suite.ts'
import { keyStoreCases } from '../../../../test/key-store-suite.ts'
import { libraries, type OpenedClient } from '../../../../test/postgres/clients.ts'
import { inTransaction } from '../../../../test/postgres/guard-world.ts'
import { until } from '../../../../test/postgres/stage.ts'
import { systemClock } from '../../../base/clock.ts'
import { sharedDatabase, sqlRunnerOf } from '../client/index.ts'
import { postgresIdempotent, postgresJobs, type SqlTransaction } from './index.ts'
import { PostgresKeys } from './keys.ts'

describe.runIf(wanted('postgres') && wanted('pgbouncer'))('idempotent on PostgreSQL', () => {
  let server: PooledPostgres
  let operator: pg.Pool
  beforeAll(async () => {
    server = await startPooledPostgres()
    operator = new pg.Pool({ connectionString: server.postgres.url, max: 2 })
    await operator.query(`CREATE TABLE parents (id int PRIMARY KEY);
      CREATE TABLE children (parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)`)
  })
  afterAll(async () => {
    await operator.end()
    await server.stop()
  })

  const home = () => ({
    database: sharedDatabase(operator),
    schema: 'holdfast',
    create: true,
    clock: systemClock,
  })

  test('G13 T31 a claim is prolonged while it lasts and is its attempt’s, and never revived', async () => {
    const keys = new PostgresKeys(home())
    const request = {
      scope: 's',
      key: 'prolonged',
      payload: null,
      attempt: 'a',
      ttlMs: 60_000,
      keepMs: 60_000,
    }
    const left = async () => {
      const answer = await keys.claim({ ...request, attempt: 'b' })
      return answer.kind === 'busy' ? answer.leftMs : 0
    }
    assert.equal((await keys.claim(request)).kind, 'claimed')
    assert.equal((await keys.claim(request)).kind, 'claimed', 'idempotent in the attempt')
    assert.ok((await left()) <= 60_000)
    assert.equal(await keys.extend(request, 600_000, 60_000), true)
    assert.ok((await left()) > 60_000)
    assert.equal(await keys.extend({ ...request, attempt: 'b' }, 600_000, 60_000), false)
    await operator.query("UPDATE holdfast.idempotency SET lease_until = now() - interval '1 ms'")
    assert.equal(await keys.extend(request, 600_000, 60_000), false)
    const stored = { kind: 'done', body: '{}' } as const
    assert.deepEqual(await keys.settle(request, { ...stored, keepMs: 1 }), stored)
  })

  test.each(libraries)(
    'G11 with $name, a connection that is dead at the first use costs the first callers a while, and no caller for ever',
    async (library) => {
      await using proxy = await startProxy(server.postgres)
      const dead = new WeakSet<object>()
      let isDying = false
      const address = new URL(server.postgres.url)
      address.port = String(proxy.port)
      await using opened = library.open(address.href, { max: 5 })
      const idempotent = postgresIdempotent({ client: opened.client })
      const jobs = postgresJobs({ client: opened.client, queue: `dead ${library.name}` })
      isDying = true
      proxy.drop('down', (link) => {
        if (isDying) dead.add(link)
        return dead.has(link)
      })
      const [counted, called] = await Promise.allSettled([
        jobs.count(),
        idempotent({ scope: 'dead', key: library.name }, () => 'never', { waitMs: 1_000 }),
      ])
      assert.equal(counted.status, 'rejected')
      assert.equal(called.status, 'rejected')
      isDying = false
      assert.equal((await jobs.count()).ready, 0)
      assert.equal(await idempotent({ scope: 'dead', key: library.name }, () => 'done'), 'done')
      // Dead connections would keep the client from ending.
      proxy.reset()
    },
  )

  test('T79 a COMMIT that silently rolls back gives no result', async () => {
    const idempotent = postgresIdempotent({ client: operator })
    const request = { scope: 's', key: 'silent rollback' }
    const call = idempotent(request, async ({ store }) => {
      const tx = await operator.connect()
      await tx.query('BEGIN')
      await store(tx, 'never committed')
      await assert.rejects(tx.query('SELECT 1 / 0'))
      const { command } = await tx.query('COMMIT')
      assert.equal(command, 'ROLLBACK')
      tx.release()
      return 'returned'
    })
    await assert.rejects(call, { code: 'NOT_COMMITTED' })
    assert.equal(await idempotent(request, () => 'again'), 'again')
  })

  test('G11 T79 a result that was committed before the database became unreachable has an unknown outcome', async () => {
    await using proxy = await startProxy(server.postgres)
    const address = new URL(server.postgres.url)
    address.port = String(proxy.port)
    const own = new pg.Pool({ connectionString: address.href, max: 2 })
    own.on('error', () => {})
    const request = { scope: 's', key: 'committed, then down' }
    const call = postgresIdempotent({ client: own })(request, async ({ store }) => {
      await inTransaction(operator, (tx) => store(tx, 'paid'))
      await proxy.close()
      return 'returned'
    })
    await assert.rejects(call, { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    await own.end()
    assert.equal(await postgresIdempotent({ client: operator })(request, () => 'again'), 'paid')
  })

  test('T79 a `store` that lands after the work has returned is waited for, and what is committed is the result', async () => {
    const idempotent = postgresIdempotent({ client: operator })
    const request = { scope: 's', key: 'not awaited' }
    const blocker = new pg.Client(server.postgres.url)
    const tx = new pg.Client(server.postgres.url)
    for (const each of [blocker, tx]) await each.connect()
    await blocker.query('SELECT pg_advisory_lock(79)')
    let storing: Promise<void> | undefined
    const call = idempotent(request, async ({ store }) => {
      await tx.query('BEGIN')
      // The connection is busy, and the work does not wait for it.
      void tx.query('SELECT pg_advisory_xact_lock(79)')
      storing = store(tx, 'paid')
      return 'returned'
    })
    const answered = call.then(
      (result) => result,
      (error: Error & { code?: string }) => error.code,
    )
    // Long enough for an answer that does not wait for the store.
    await sleep(200)
    await blocker.query('SELECT pg_advisory_unlock(79)')
    await storing
    await tx.query('COMMIT')
    assert.equal(await answered, 'paid')
    assert.equal(await idempotent(request, () => 'again'), 'paid')
    for (const each of [blocker, tx]) await each.end()
  })

  describe('its keys', () => {
    keyStoreCases(() => ({
      store: new PostgresKeys(home()),
      async expire({ scope, key }) {
        await operator.query(
          "UPDATE holdfast.idempotency SET lease_until = now() - interval '1 s' WHERE scope = $1 AND key = $2",
          [scope, key],
        )
      },
    }))
  })

  test.each(libraries)(
    'T21 with $name, callers that wait behind one key do not use up the pool of the others',
    async (library) => {
      await using opened = library.open(server.postgres.url, { max: 2 })
      const idempotent = postgresIdempotent({ client: opened.client })
      const request = { scope: 's', key: `in line, ${library.name}` }
      await idempotent({ ...request, key: 'first contact' }, () => 1)
      const own = new pg.Client(server.postgres.url)
      await own.connect()
      const gate = Promise.withResolvers<void>()
      const begun = Promise.withResolvers<void>()
      const first = idempotent(request, async ({ store }) => {
        await own.query('BEGIN')
        await store(own, 'first')
        begun.resolve()
        await gate.promise
        await own.query('COMMIT')
      })
      await begun.promise
      const others = Array.from({ length: 8 }, () =>
        idempotent(request, () => assert.fail('done already'), { waitMs: 60_000 }),
      )
      let most = 0
      for (let looks = 0; looks < 5; looks++) {
        const { rows } = await operator.query(
          "SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%idempotency%'",
        )
        most = Math.max(most, rows[0].n)
        assert.equal(await idempotent({ ...request, key: `${request.key} ${looks}` }, () => looks), looks)
      }
      assert.ok(most <= 1, `${most} connections waited for one key`)
      gate.resolve()
      assert.deepEqual(new Set(await Promise.all([first, ...others])), new Set(['first']))
      await own.end()
    },
  )

  test('T67 tokens are in the order of claims, through claims that are given back', async () => {
    const keys = new PostgresKeys(home())
    const seen: bigint[] = []
    const claimAndGiveBack = async (attempt: string) => {
      for (let round = 0; round < 25; ) {
        const request = { scope: 's', key: 'order', payload: null, attempt, ttlMs: 60_000, keepMs: 1 }
        const answer = await keys.claim(request)
        if (answer.kind !== 'claimed') continue
        round++
        seen.push(answer.token)
        await keys.abandon(request, { begun: false, keepMs: 1 })
      }
    }
    await Promise.all(['a', 'b', 'c'].map(claimAndGiveBack))
    assert.equal(seen.length, 75)
    assert.deepEqual(
      seen,
      seen.toSorted((a, b) => Number(a - b)),
    )
  })

  test('G11 G6 a signal ends the wait behind another’s transaction at once, and what is claimed later is given back', async () => {
    const idempotent = postgresIdempotent({ client: operator })
    const request = { scope: 's', key: 'behind another' }
    await idempotent({ ...request, key: 'first contact' }, () => 1)
    const blocker = new pg.Client(server.postgres.url)
    await blocker.connect()
    await blocker.query('BEGIN; LOCK TABLE holdfast.idempotency IN EXCLUSIVE MODE')
    const controller = new AbortController()
    const reason = new Error('no longer needed')
    const asking = idempotent(request, () => 'done', { signal: controller.signal })
    const refused = assert.rejects(asking, reason)
    const waits =
      "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%idempotency%'"
    while ((await operator.query(waits)).rows.length === 0);
    controller.abort(reason)
    await refused
    await blocker.query('COMMIT')
    await blocker.end()
    assert.equal(await idempotent(request, () => 'another', { waitMs: 20_000 }), 'another')
  })

  test.each(libraries)(
    'G11 G6 with $name, a caller hears at waitMs that a transaction blocks the key, and leaves nothing behind that waits',
    async (library) => {
      await using opened = library.open(server.postgres.url, { max: 3 })
      const idempotent = postgresIdempotent({ client: opened.client })
      const request = { scope: 's', key: `blocked ${library.name}` }
      await idempotent({ ...request, key: 'first contact' }, () => 1)
      const blocker = new pg.Client(server.postgres.url)
      await blocker.connect()
      await blocker.query('BEGIN; LOCK TABLE holdfast.idempotency IN EXCLUSIVE MODE')
      const waiting = async () =>
        (
          await operator.query(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%idempotency%'",
          )
        ).rows.length
      const order: string[] = []
      const patient = idempotent(request, () => 'done', { waitMs: 60_000 }).finally(() =>
        order.push('patient'),
      )
      const refused = Array.from({ length: 6 }, () =>
        assert.rejects(
          idempotent(request, () => assert.fail('it is blocked'), { waitMs: 100 }),
          { code: 'ACQUIRE_TIMEOUT', isBlocked: true, message: /keeps the key locked/ },
        ),
      )
      await Promise.all(refused)
      order.push('refused')
      await until(
        'no process of the server waits for callers that have gone',
        async () => (await waiting()) <= 1,
      )
      await blocker.query('COMMIT')
      await blocker.end()
      assert.equal(await patient, 'done')
      assert.deepEqual(order, ['refused', 'patient'])
    },
  )

  test('a server whose default is SERIALIZABLE only makes callers look again', async () => {
    const url = new URL(server.postgres.url)
    url.searchParams.set('options', '-c default_transaction_isolation=serializable')
    const pools = [1, 2, 3].map(() => new pg.Pool({ connectionString: url.href, max: 2 }))
    let works = 0
    const calls = Array.from({ length: 18 }, (_, at) =>
      postgresIdempotent({ client: pools[at % 3] as pg.Pool })(
        { scope: 's', key: 'serializable' },
        () => ++works,
      ),
    )
    assert.deepEqual(new Set(await Promise.all(calls)), new Set([1]))
    for (const each of pools) await each.end()
  })

  for (const [library, way] of [
    [libraries[0], 'directly'],
    [libraries[1], 'through a pooler'],
  ] as const)
    describe(`${library?.name} ${way}`, () => {
      let opened: OpenedClient[]
      let world: IdempotentWorld<SqlTransaction>
      beforeAll(() => {
        const url = way === 'directly' ? server.postgres.url : server.url
        opened = [1, 2, 3].map(() => library?.open(url, { max: 3 }) as OpenedClient)
        const direct = library?.open(server.postgres.url, { max: 2 }) as OpenedClient
        opened.push(direct)
        world = {
          clients: opened.map(({ client }) => postgresIdempotent({ client })),
          async expire(scope, key, what) {
            await operator.query(
              `UPDATE holdfast.idempotency SET lease_until = CASE WHEN $3 THEN now() - interval '1 s' ELSE lease_until END,
                expires_at = CASE WHEN $3 THEN expires_at ELSE now() - interval '1 s' END WHERE scope = $1 AND key = $2`,
              [scope, key, what === 'claim'],
            )
          },
          transaction: (body) => inTransaction(direct.client, body),
          async spoil(tx) {
            await sqlRunnerOf(tx).query('INSERT INTO children VALUES (1)')
          },
          program: `
            import pg from 'pg'
            const { postgresIdempotent } = await load('src/engines/postgres/lockfree/index.ts')
            const idempotent = postgresIdempotent({ client: new pg.Pool({ connectionString: ${JSON.stringify(url)} }) })`,
        }
      })
      afterAll(async () => {
        for (const each of opened) await each[Symbol.asyncDispose]()
      })

      idempotentCases(() => world)
    })
})
