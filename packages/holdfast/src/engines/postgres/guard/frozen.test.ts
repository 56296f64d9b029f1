/** A run ends with its lease: a holder that hangs or is frozen in its transaction does not block its successor (T86, frozen transactions). */
import assert from 'node:assert/strict'
import { type Server, startPostgres, waitFor, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import type postgres from 'postgres'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { fence } from '../../../../test/guard-table.ts'
import { type ClientLibrary, libraries, withPostgresJs } from '../../../../test/postgres/clients.ts'
import { inTransaction } from '../../../../test/postgres/guard-world.ts'
import { startProgram } from '../../../../test/postgres/program.ts'
import { type Clock, systemClock } from '../../../base/clock.ts'
import { createLocker } from '../../../locker/locker.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { memory } from '../../memory/index.ts'
import { sqlRunnerOf } from '../client/index.ts'
import { postgres as postgresBackend } from '../locks/index.ts'
import { type PostgresGuard, postgresGuard } from './postgres-guard.ts'

describe.runIf(wanted('postgres'))('postgresGuard and the end of a lease', () => {
  let server: Server & { readonly url: string }
  let pool: pg.Pool
  /** The successor's, on connections of its own. */
  let guard: PostgresGuard<pg.PoolClient>
  const locker = createLocker(memory({ issuer: 'i' }))
  beforeAll(async () => {
    server = await startPostgres()
    pool = new pg.Pool({ connectionString: server.url, max: 4 })
    pool.on('error', () => {})
    await pool.query('CREATE TABLE cells (key text PRIMARY KEY, value text NOT NULL)')
    guard = postgresGuard({ client: pool })
    await guard.run(fence(1n, 'any'), () => {})
  })
  afterAll(async () => {
    await locker.close()
    await pool.end()
    await server.stop()
  })

  const write = (tx: object, key: string, value: string) =>
    sqlRunnerOf(tx as never).query(
      'INSERT INTO cells VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value',
      [key, value],
    )
  const stored = async (key: string) =>
    (await pool.query('SELECT value FROM cells WHERE key = $1', [key])).rows[0]?.value as string | undefined
  const waiting = async () =>
    (await pool.query("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active'"))
      .rows.length > 0
  const openGuard = (library: ClientLibrary, options: { max?: number; maxIdleMs?: number } = {}) => {
    const { maxIdleMs, ...rest } = options
    const opened = library.open(server.url, { max: 2, fetchTypes: false, ...rest })
    const own = postgresGuard({ client: opened.client, ...(maxIdleMs !== undefined && { maxIdleMs }) })
    return Object.assign(opened, { guard: own })
  }

  test.each(libraries)(
    'T86 with $name, a holder that is frozen in a run does not block its successor',
    async (library) => {
      const name = `frozen ${library.name}`
      const module = library.name === 'pg' ? 'withPg' : 'withPostgresJs'
      const program = await startProgram(`
        const { ${module} } = await load('test/postgres/clients.ts')
        const { postgres } = await load('src/engines/postgres/locks/index.ts')
        const { createLocker } = await load('src/locker/locker.ts')
        const { postgresGuard } = await load('src/engines/postgres/guard/postgres-guard.ts')
        const { client } = ${module}.open(${JSON.stringify(server.url)}, { fetchTypes: false })
        client.on?.('error', () => {})
        const locker = createLocker(await postgres({ client, issuer: 'i' }))
        const guard = postgresGuard({ client })
        const lease = await locker.acquire('${name}', { ttlMs: 1_000 })
        try {
          await guard.run(lease, async (tx) => {
            await (tx.unsafe ?? tx.query).call(tx, "INSERT INTO cells VALUES ('${name}', 'of the frozen holder')")
            say('inside')
            await new Promise(() => {})
          })
        } catch (error) {
          say('ended ' + error.code)
        }
        setInterval(() => {}, 1_000)`)
      try {
        await program.said('inside')
        program.process.kill('SIGSTOP')
        await using successor = createLocker(await postgresBackend({ client: pool, issuer: 'i' }))
        await successor.withLease(name, { ttlMs: 1_000 }, (lease) =>
          guard.run(lease, (tx) => write(tx, name, 'of its successor')),
        )
        program.process.kill('SIGCONT')
        await program.said('ended LEASE_LOST')
        assert.equal(await stored(name), 'of its successor')
      } finally {
        await program.kill()
      }
    },
  )

  test.each(libraries)(
    'T86 with $name, a run whose effect hangs ends with its lease, and its late statements do nothing',
    async (library) => {
      await using holder = openGuard(library)
      const name = `hangs ${library.name}`
      const lease = await locker.acquire(name, { maxHoldMs: 1_500 })
      const later = Promise.withResolvers<void>()
      const over = Promise.withResolvers<void>()
      const late: string[] = []
      const run = holder.guard.run(lease, async (tx) => {
        await write(tx, name, 'of the holder')
        // A query of postgres.js is not sent before it is awaited.
        const made =
          'unsafe' in tx ? tx.unsafe(`INSERT INTO cells VALUES ('${name}', 'too late')`) : undefined
        await later.promise
        const statements = [() => made?.values(), () => write(tx, name, 'too late')]
        for (const statement of made === undefined ? statements.slice(1) : statements)
          await Promise.resolve(statement()).catch(() => late.push('refused'))
        over.resolve()
      })
      await assert.rejects(run, (error: Error & { code?: string; reason?: string }) => {
        assert.equal(error.code, 'LEASE_LOST')
        assert.equal(error.reason, 'max-hold')
        assert.match(error.message, /run was in progress .* nothing was applied/)
        return true
      })
      // The effect still hangs, and the name is free.
      assert.equal(await guard.run(fence(lease.fence.token + 1n, name), () => 'through'), 'through')
      later.resolve()
      await over.promise
      assert.deepEqual(late, library.name === 'pg' ? ['refused'] : ['refused', 'refused'])
      assert.equal(await stored(name), undefined)
      assert.equal(await holder.guard.run(fence(lease.fence.token + 2n, name), () => 'works'), 'works')
    },
  )

  test('T86 with pg, a statement that is running when the lease ends is cancelled', async () => {
    const [library] = libraries
    await using holder = openGuard(library as ClientLibrary)
    const lease = await locker.acquire('at work', { maxHoldMs: 300 })
    const run = holder.guard.run(lease, (tx) => sqlRunnerOf(tx).query('SELECT pg_sleep(600)'))
    await assert.rejects(run, { code: 'LEASE_LOST' })
    assert.equal(await guard.run(fence(lease.fence.token + 1n, 'at work'), () => 'through'), 'through')
  })

  test.each(libraries)(
    'T86 with $name, a run does not wait for another’s transaction past its own lease',
    async (library) => {
      await using successor = openGuard(library)
      const name = `waits ${library.name}`
      const lease = await locker.acquire(name, { maxHoldMs: 500 })
      const gate = Promise.withResolvers<void>()
      const entered = Promise.withResolvers<void>()
      const before = inTransaction(pool, async (tx) => {
        await guard.enter(tx as pg.PoolClient, fence(lease.fence.token - 1n, name))
        entered.resolve()
        await gate.promise
      })
      await entered.promise
      const run = successor.guard.run(lease, () => assert.fail('its lease has ended'))
      await assert.rejects(run, { code: 'LEASE_LOST', reason: 'max-hold' })
      gate.resolve()
      await before
    },
  )

  test.each(libraries)(
    'T86 with $name, a commit that is in flight when the lease ends is told as it was answered',
    async (library) => {
      await using holder = openGuard(library)
      const table = `waits_${library.name.replace('.', '_')}`
      await pool.query(`CREATE TABLE ${table} (key text);
        CREATE FUNCTION ${table}_at_commit() RETURNS trigger LANGUAGE plpgsql AS
          'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END';
        CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON ${table} DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION ${table}_at_commit()`)
      const blocker = await pool.connect()
      await blocker.query('BEGIN; SELECT pg_advisory_xact_lock(4711)')
      const lease = await locker.acquire(`commits ${library.name}`, { maxHoldMs: 1_000 })
      const run = holder.guard.run(lease, async (tx) => {
        await sqlRunnerOf(tx as never).query(`INSERT INTO ${table} VALUES ('x')`)
        return 'committed'
      })
      await waitFor('the commit to wait', waiting)
      await waitFor('the lease to end', async () => lease.state === 'lost')
      await blocker.query('COMMIT')
      blocker.release()
      assert.equal(await run, 'committed')
      assert.equal((await pool.query(`SELECT * FROM ${table}`)).rows.length, 1)
    },
  )

  test.each(libraries)(
    'T86 with $name, a transaction that is idle for too long is ended by the server, and the error says so',
    async (library) => {
      await using holder = openGuard(library, { maxIdleMs: 200 })
      const name = `idle ${library.name}`
      const run = holder.guard.run(fence(5n, name), async (tx) => {
        await write(tx, name, 'half done')
        await waitFor('the server to end it', async () => {
          const { rows } = await pool.query(
            "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'",
          )
          return rows.length === 0
        })
        // `pg` says so at the next statement, postgres.js by itself.
        if (library.name === 'pg') await write(tx, name, 'more')
        else await new Promise(() => {})
      })
      await assert.rejects(run, (error: Error & { code?: string; outcome?: string }) => {
        assert.equal(error.code, 'BACKEND_UNAVAILABLE')
        assert.equal(error.outcome, 'not-applied')
        assert.match(error.message, /idle for .*200 ms.*maxIdleMs/)
        return true
      })
      assert.equal(await stored(name), undefined)
      assert.equal(await holder.guard.run(fence(4n, name), () => 'works'), 'works')
    },
  )

  test('T86 with postgres.js, a run that its lease ended gives its connection back although its effect hangs', async () => {
    await using holder = openGuard(withPostgresJs, { max: 1, maxIdleMs: 300 })
    const lease = await locker.acquire('hangs for ever', { maxHoldMs: 200 })
    const run = holder.guard.run(lease, async (tx) => {
      await write(tx, 'hangs for ever', 'of the holder')
      await new Promise(() => {})
    })
    await assert.rejects(run, { code: 'LEASE_LOST' })
    assert.equal(
      await holder.guard.run(fence(lease.fence.token + 1n, 'hangs for ever'), () => 'works'),
      'works',
    )
  })

  test('T86 with postgres.js and no limit, a connection that ends during a run is not called idle', async () => {
    await using holder = openGuard(withPostgresJs, { maxIdleMs: Number.POSITIVE_INFINITY })
    const run = holder.guard.run(fence(1n, 'no limit'), async (tx) => {
      const [row] = await sqlRunnerOf(tx as never).query('SELECT pg_backend_pid()')
      await pool.query('SELECT pg_terminate_backend($1)', [row?.[0]])
      await new Promise(() => {})
    })
    await assert.rejects(run, {
      outcome: 'not-applied',
      message: /^postgres: the connection ended during the transaction\b(?!.*idle)/,
    })
  })

  test.each(libraries)(
    'T86 with $name, a run asks the clock for its lease’s end: a timer may be late',
    async (library) => {
      let skippedMs = 0
      const late: Clock = {
        monotonicMs: () => systemClock.monotonicMs() + skippedMs,
        wallMs: () => systemClock.wallMs(),
        setTimer: (delayMs, fire, options) => systemClock.setTimer(delayMs, fire, options),
      }
      await using holder = openGuard(library)
      await using own = createLocker(memory({ issuer: 'i', clock: late }))
      const name = `late ${library.name}`
      const lease = await own.acquire(name)
      const run = holder.guard.run(lease, async (tx) => {
        await write(tx, name, 'too late')
        skippedMs = 3_600_000
      })
      await assert.rejects(run, { code: 'LEASE_LOST' })
      assert.equal(await stored(name), undefined)
    },
  )

  test.each([1, 2])(
    'T86 with postgres.js and %d connections, a statement made before the server ended the transaction is refused',
    async (max) => {
      await using holder = openGuard(withPostgresJs, { max, maxIdleMs: 200 })
      const name = `made early ${max}`
      const later = Promise.withResolvers<void>()
      const refusals = Promise.withResolvers<readonly string[]>()
      const insert = `INSERT INTO cells VALUES ('${name}', 'stale')`
      const run = holder.guard.run(fence(5n, name), async (native) => {
        const tx = native as unknown as postgres.TransactionSql
        await write(tx, name, 'half done')
        const made = tx`INSERT INTO cells VALUES (${name}, 'stale')`
        const whole = tx`INSERT INTO cells ${tx`VALUES (${name}, 'stale')`}`
        const [plain, values, started] = [tx.unsafe(insert), tx.unsafe(insert).values(), tx.unsafe(insert)]
        const [cursor, each] = [tx.unsafe(insert).cursor(1), tx.unsafe(insert)]
        await later.promise
        const attempts: (() => PromiseLike<unknown>)[] = [
          () => made,
          () => whole,
          () => plain.catch((error: Error) => Promise.reject(error)),
          () => values,
          () => started.execute(),
          () => cursor[Symbol.asyncIterator]().next(),
          () => each.forEach(() => {}),
          () => tx.unsafe(insert).readable(),
        ]
        const refused: string[] = []
        for (const attempt of attempts)
          refused.push(
            await Promise.resolve()
              .then(attempt)
              .then(
                () => 'accepted',
                (error: Error & { outcome?: string }) => String(error.outcome),
              ),
          )
        refusals.resolve(refused)
      })
      await assert.rejects(run, { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
      // The client has another connection instead of the one that ended.
      await sqlRunnerOf(holder.client as never).query('SELECT 1')
      later.resolve()
      assert.deepEqual(
        await refusals.promise,
        Array.from({ length: 8 }, () => 'not-applied'),
      )
      assert.equal(await stored(name), undefined)
    },
  )

  test('T86 with postgres.js, fragments, cursors and the other forms of a statement work in a run', async () => {
    await using holder = openGuard(withPostgresJs)
    const seen = await holder.guard.run(fence(5n, 'forms'), async (native) => {
      const tx = native as unknown as postgres.TransactionSql
      const numbers = tx`generate_series(1, ${3})`
      const batches: unknown[] = []
      for await (const rows of tx`SELECT * FROM ${numbers} AS n`.cursor(2)) batches.push(rows.length)
      const each: unknown[] = []
      await tx`SELECT 1 AS n`.forEach((row) => void each.push(row.n))
      const inCursor: unknown[] = []
      await tx`SELECT * FROM ${numbers} AS n`.cursor(2, (rows) => void inCursor.push(rows.length))
      return {
        batches,
        each,
        inCursor,
        started: [...(await tx`SELECT 2 AS n`.execute())],
        values: [...(await tx`SELECT 3 AS n`.values())],
        described: (await tx`SELECT 4 AS n`.describe()).columns.length,
        savepoint: (await tx.savepoint((inner) => inner`SELECT 5 AS n`))[0]?.n,
        all: (await Promise.all([tx`SELECT 6 AS n`, tx.unsafe('SELECT 7 AS n').simple()])).map(
          ([row]) => row?.n,
        ),
        text: (await (await tx`COPY (SELECT 8) TO STDOUT`.readable()).toArray()).join(''),
      }
    })
    assert.deepEqual(seen, {
      batches: [2, 1],
      each: [1],
      inCursor: [2, 1],
      started: [{ n: 2 }],
      values: [[3]],
      described: 1,
      savepoint: 5,
      all: [6, 7],
      text: '8\n',
    })
  })

  test('T86 a process that is frozen in the last look before COMMIT does not commit', async () => {
    const clock = createFakeClock()
    const frozen = createLocker(memory({ issuer: 'i', clock }))
    const lease = await frozen.acquire('frozen at the end', { ttlMs: 10_000 })
    const asked: string[] = []
    const run = guard.run(lease, async (tx) => {
      await write(tx, 'frozen at the end', 'too late')
      const query = tx.query as (...values: unknown[]) => Promise<unknown>
      tx.query = (async (...values: unknown[]) => {
        const { text } = values[0] as { text?: string }
        asked.push(text ?? String(values[0]))
        const answer = await query.apply(tx, values)
        // Its timers do not fire, so only a look at the clock tells that the lease has ended.
        if (asked.length === 1) clock.block(20_000)
        return answer
      }) as typeof tx.query
    })
    await assert.rejects(run, { code: 'LEASE_LOST' })
    assert.match(String(asked[0]), /pg_current_xact_id/)
    assert.ok(!asked.includes('COMMIT'), asked.join('; '))
    assert.equal(await stored('frozen at the end'), undefined)
    await frozen.close()
  })

  test.each(libraries)(
    'T86 with $name, the limit is the lease’s TTL, never above the session’s own, and ends with the transaction',
    async (library) => {
      const shown = async (tx: object) =>
        (await sqlRunnerOf(tx as never).query('SHOW idle_in_transaction_session_timeout'))[0]?.[0]
      const limits = async (settings: Record<string, string>) => {
        await using opened = library.open(server.url, { max: 1, settings })
        const own = postgresGuard({ client: opened.client })
        await using lease = await locker.acquire(`limit ${library.name}`, { ttlMs: 7_000 })
        return {
          lease: await own.run(lease, shown),
          fence: await own.run(fence(1n, `limit ${library.name} of a fence`), shown),
          off: await postgresGuard({ client: opened.client, maxIdleMs: Number.POSITIVE_INFINITY }).run(
            lease,
            shown,
          ),
          after: await shown(opened.client),
        }
      }
      const idle = (value: string) => ({ idle_in_transaction_session_timeout: value })
      assert.deepEqual(await limits({}), { lease: '7s', fence: '15s', off: '0', after: '0' })
      assert.deepEqual(await limits(idle('2500')), {
        lease: '2500ms',
        fence: '2500ms',
        off: '2500ms',
        after: '2500ms',
      })
      assert.deepEqual(await limits(idle('1d')), { lease: '7s', fence: '15s', off: '1d', after: '1d' })
    },
  )
})
