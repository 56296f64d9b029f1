import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, describe, test } from 'vitest'
import { idempotentCases } from '../../../../test/idempotent-suite.ts'
import { keyStoreCases } from '../../../../test/key-store-suite.ts'
import { type Clock, sleep, systemClock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { BackendUnavailableError, ClosedError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'
import { createIdempotent, type IdempotentContext } from '../../../lockfree/idempotent.ts'
import type { KeyStore } from '../../../lockfree/key-store.ts'
import { createFakeClock, type FakeClock } from '../../../testing/fake-clock.ts'
import { type SqliteDatabase, sqliteIdempotent } from './index.ts'
import { SqliteKeys } from './keys.ts'

const folder = mkdtempSync(join(tmpdir(), 'holdfast-idempotent-'))
afterAll(() => rmSync(folder, { recursive: true }))

describe('idempotent on SQLite', () => {
  const path = join(folder, 'keys.db')
  const clients = [1, 2, 3].map(() => sqliteIdempotent({ path }))
  const operator = new DatabaseSync(path)
  operator.exec('PRAGMA busy_timeout = 5000')
  operator.exec(`CREATE TABLE parents (id INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED) STRICT`)
  afterAll(async () => {
    for (const client of clients) await client.close()
    operator.close()
  })

  idempotentCases<SqliteDatabase>(() => ({
    clients,
    async expire(scope, key, what) {
      const set = what === 'claim' ? 'lease_until_ms = 0' : 'expires_ms = 0'
      operator.prepare(`UPDATE holdfast_idempotency SET ${set} WHERE scope = ? AND key = ?`).run(scope, key)
    },
    async transaction(body) {
      operator.exec('BEGIN IMMEDIATE')
      try {
        const result = await body(operator)
        operator.exec('COMMIT')
        return result
      } finally {
        if (operator.isTransaction) operator.exec('ROLLBACK')
      }
    },
    spoil: async (tx) => tx.exec('INSERT INTO children VALUES (1)'),
    program: `
      const { sqliteIdempotent } = await load('src/engines/sqlite/lockfree/index.ts')
      const idempotent = sqliteIdempotent({ path: ${JSON.stringify(path)} })`,
  }))
})

describe('idempotency keys in SQLite', () => {
  const path = join(folder, 'steps.db')
  const store = new SqliteKeys(new DatabaseSync(path), systemClock, systemRandom)
  const operator = new DatabaseSync(path)
  afterAll(async () => {
    operator.close()
    await store.close()
  })
  keyStoreCases(() => ({
    store: store as unknown as KeyStore<never>,
    async expire({ scope, key }) {
      operator
        .prepare('UPDATE holdfast_idempotency SET lease_until_ms = 0 WHERE scope = ? AND key = ?')
        .run(scope, key)
    },
  }))
})

describe('what is specific to SQLite', () => {
  test('work that takes many times as long as a claim is renewed, and no other caller takes over', async () => {
    const path = join(folder, 'long.db')
    const clock = createFakeClock()
    const [one, two] = [sqliteIdempotent({ path, clock }), sqliteIdempotent({ path, clock })]
    const gate = Promise.withResolvers<void>()
    let works = 0
    const working = one({ scope: 's', key: 'k' }, async ({ signal }) => {
      works++
      await gate.promise
      return signal.aborted
    })
    await clock.advance(0)
    const waiting = two({ scope: 's', key: 'k' }, () => assert.fail('another caller is at it'), {
      waitMs: Infinity,
    })
    await clock.advance(150_000)
    gate.resolve()
    assert.equal(await working, false)
    await clock.advance(1_000)
    assert.equal(await waiting, false)
    assert.equal(works, 1)
    assert.equal(clock.pendingTimers, 0)
    for (const each of [one, two]) await each.close()
  })

  test('T71 a claim of before a reboot is over: the clock starts again, and the claim lies in the future', async () => {
    const path = join(folder, 'reboot.db')
    const clock = createFakeClock()
    await clock.advance(86_400_000)
    const before = new SqliteKeys(new DatabaseSync(path), clock, systemRandom)
    const claim = { scope: 's', key: 'k', payload: null, ttlMs: 15_000, keepMs: 1_000 }
    assert.equal((await before.claim({ ...claim, attempt: 'a' })).kind, 'claimed')
    assert.equal((await before.claim({ ...claim, attempt: 'b' })).kind, 'busy')
    const after = new SqliteKeys(new DatabaseSync(path), createFakeClock(), systemRandom)
    assert.deepEqual(await after.claim({ ...claim, attempt: 'b' }), {
      kind: 'claimed',
      token: 2n,
      isTakeover: true,
    })
    for (const store of [before, after]) await store.close()
  })

  test('a file of another kind, of a later release, or nowhere is refused with what to do', async () => {
    writeFileSync(
      join(folder, 'text.db'),
      'this is not a database, but it is long enough to be taken for one'.repeat(20),
    )
    const text = sqliteIdempotent({ path: join(folder, 'text.db') })
    await assert.rejects(
      text({ scope: 's', key: 'k' }, () => 1),
      { code: 'UNSUPPORTED', message: /not an SQLite database/ },
    )
    const path = join(folder, 'later.db')
    const early = sqliteIdempotent({ path })
    await early({ scope: 's', key: 'k' }, () => 1)
    await early.close()
    await assert.rejects(
      early({ scope: 's', key: 'k' }, () => 1),
      { code: 'CLOSED' },
    )
    const operator = new DatabaseSync(path)
    operator.exec('UPDATE holdfast_idempotency_layout SET version = 2')
    operator.close()
    await assert.rejects(
      sqliteIdempotent({ path })({ scope: 's', key: 'k' }, () => 1),
      { code: 'UNSUPPORTED' },
    )
    for (const options of [
      undefined,
      {},
      { path: '' },
      { path: ':memory:' },
      { path: '/no/such/folder/x.db' },
    ])
      assert.throws(() => sqliteIdempotent(options as never), { code: 'INVALID_ARGUMENT' })
  })

  test('tables that are undone with a failed first step are made by the next one', async () => {
    const database = new DatabaseSync(join(folder, 'undone.db'))
    let failures = 1
    const failing: SqliteDatabase & { close(): void } = {
      prepare: (sql) => database.prepare(sql),
      exec(sql) {
        if (sql === 'COMMIT' && failures-- > 0) throw new Error('planted')
        database.exec(sql)
      },
      get isTransaction() {
        return database.isTransaction
      },
      close: () => database.close(),
    }
    const keys = new SqliteKeys(failing, systemClock, systemRandom)
    await assert.rejects(keys.prune(), { code: 'BACKEND_UNAVAILABLE' })
    assert.equal(await keys.prune(), 0)
    await keys.close()
  })

  test('a release of Node that knows only plain parameters gets no others', async () => {
    const database = new DatabaseSync(join(folder, 'plain.db'))
    const old: SqliteDatabase & { close(): void } = {
      prepare(sql) {
        assert.doesNotMatch(sql, /\?\d/)
        return database.prepare(sql)
      },
      exec: (sql) => database.exec(sql),
      close: () => database.close(),
    }
    const idempotent = createIdempotent(new SqliteKeys(old, systemClock, systemRandom))
    const request = { scope: 's', key: 'k' }
    assert.equal(await idempotent(request, () => sleep(systemClock, 200).then(() => 5), { ttlMs: 100 }), 5)
    await assert.rejects(
      idempotent({ ...request, key: 'throws' }, () => Promise.reject(new Error('planted'))),
      /planted/,
    )
    await idempotent.prune()
    await idempotent.close()
  })

  test('a result is stored in a transaction on the file of the keys, and nowhere else', async () => {
    const idempotent = sqliteIdempotent({ path: join(folder, 'here.db') })
    const elsewhere = new DatabaseSync(join(folder, 'elsewhere.db'))
    const outside = new DatabaseSync(join(folder, 'here.db'))
    const call = idempotent({ scope: 's', key: 'k' }, async ({ store }) => {
      await assert.rejects(store(outside, 1), { code: 'INVALID_ARGUMENT', message: /inside a transaction/ })
      elsewhere.exec('BEGIN')
      await assert.rejects(store(elsewhere, 1), {
        code: 'INVALID_ARGUMENT',
        message: /file in which the keys are/,
      })
    })
    await assert.rejects(call, { code: 'NOT_COMMITTED' })
    await idempotent.close()
  })
})

describe('answers that get lost', () => {
  const unknown = () => new BackendUnavailableError('sqlite', 'the answer is lost', 'unknown')
  const refused = () => new BackendUnavailableError('sqlite', 'the database is down', 'not-applied')

  /** A real store whose answers to some calls are lost after they were applied, or before, or which refuses calls. */
  function lossy(
    lose: (call: string, count: number) => 'after' | 'before' | 'refused' | 'closed' | 'never',
    clock: Clock = systemClock,
  ) {
    const path = join(folder, `lossy ${++files}.db`)
    const store = new SqliteKeys(new DatabaseSync(path), systemClock, systemRandom)
    const counts = new Map<string, number>()
    const wrapped = new Proxy(store, {
      get(target, name: keyof KeyStore<SqliteDatabase>) {
        const method = target[name].bind(target) as (...args: unknown[]) => Promise<unknown>
        return async (...args: unknown[]) => {
          const count = (counts.get(name) ?? 0) + 1
          counts.set(name, count)
          const when = lose(name, count)
          if (when === 'before') throw unknown()
          if (when === 'refused') throw refused()
          if (when === 'closed') throw new ClosedError()
          const answer = await method(...args)
          if (when === 'after') throw unknown()
          return answer
        }
      },
    })
    return { idempotent: createIdempotent<SqliteDatabase>(wrapped, { clock }), store, counts, path }
  }
  let files = 0
  const request = { scope: 's', key: 'k' }

  test.each(['before', 'after'] as const)(
    'T15 of the claim (lost %s it was applied): the same attempt asks again',
    async (when) => {
      const { idempotent, counts } = lossy((call, count) =>
        call === 'claim' && count === 1 ? when : 'never',
      )
      let works = 0
      assert.equal(await idempotent(request, ({ isTakeover }) => `${++works} ${isTakeover}`), '1 false')
      assert.equal(counts.get('claim'), 2)
    },
  )

  test.each([
    [1_000, 1_000],
    [0, defaults.callTimeoutMs],
  ])(
    'G11 G6 of the claim, which comes late: with waitMs %i the caller hears it after %i, and what is claimed then is given back',
    async (waitMs, patienceMs) => {
      const clock = createFakeClock()
      const store = new SqliteKeys(new DatabaseSync(join(folder, `late ${++files}.db`)), clock, systemRandom)
      const gate = Promise.withResolvers<void>()
      const givenBack = Promise.withResolvers<void>()
      const late: KeyStore<SqliteDatabase> = {
        issuer: () => store.issuer(),
        claim: (asked) => gate.promise.then(() => store.claim(asked)),
        extend: (claimed, ttlMs, keepMs) => store.extend(claimed, ttlMs, keepMs),
        settle: (claimed, outcome, tx) => store.settle(claimed, outcome, tx),
        abandon: (claimed, how) => store.abandon(claimed, how).finally(givenBack.resolve),
        prune: () => store.prune(),
        close: () => store.close(),
      }
      let answer: unknown
      createIdempotent(late, { clock })(request, () => assert.fail('it was given up'), { waitMs }).catch(
        (error: unknown) => {
          answer = error
        },
      )
      await clock.advance(patienceMs - 1)
      assert.equal(answer, undefined)
      await clock.advance(1)
      assert.match(String(answer), /AcquireTimeoutError: .* The database had not answered/)
      assert.equal(clock.pendingTimers, 0)
      gate.resolve()
      await givenBack.promise
      assert.equal(
        await createIdempotent(store, { clock })(request, () => 'another', { waitMs: 0 }),
        'another',
      )
      await store.close()
    },
  )

  test('of the issuer: the claim is given back, because no work was begun under it', async () => {
    const store = new SqliteKeys(
      new DatabaseSync(join(folder, `issuer ${++files}.db`)),
      systemClock,
      systemRandom,
    )
    const givenBack = Promise.withResolvers<void>()
    const failing = new Proxy(store, {
      get: (_, name) =>
        name === 'issuer'
          ? async () => Promise.reject(new BackendUnavailableError('sqlite', 'planted', 'not-applied'))
          : (...given: never[]) => {
              const answer = (store[name as 'abandon'] as (...all: never[]) => Promise<unknown>)(...given)
              return name === 'abandon' ? answer.finally(givenBack.resolve) : answer
            },
    })
    const never = () => assert.fail('nothing may be begun')
    await assert.rejects(createIdempotent(failing)(request, never, { waitMs: 0 }), /planted/)
    await givenBack.promise
    const next = createIdempotent(store)(request, ({ isTakeover }) => isTakeover, { waitMs: 0 })
    assert.equal(await next, false)
    await store.close()
  })

  test('of the claim, which comes when its time is over: it is claimed again before the work begins', async () => {
    const clock = createFakeClock()
    const store = new SqliteKeys(new DatabaseSync(join(folder, `over ${++files}.db`)), clock, systemRandom)
    let claims = 0
    const slow = new Proxy(store, {
      get(target, name: keyof KeyStore<SqliteDatabase>) {
        const method = target[name].bind(target) as (...args: unknown[]) => Promise<unknown>
        if (name !== 'claim') return method
        return async (...args: unknown[]) => {
          const answer = await method(...args)
          if (++claims === 1) await sleep(clock, 1_000)
          return answer
        }
      },
    })
    const seen: unknown[] = []
    const call = createIdempotent<SqliteDatabase>(slow, { clock })(
      request,
      ({ signal, isTakeover }) => seen.push(claims, signal.aborted, isTakeover),
      { ttlMs: 1_000 },
    )
    await clock.advance(1_000)
    await call
    assert.deepEqual(seen, [2, false, false])
    await store.close()
  })

  test('G6 of the claim, which always comes when its time is over: a caller who does not wait claims once more, and gives it back', async () => {
    const clock = createFakeClock()
    const store = new SqliteKeys(new DatabaseSync(join(folder, `late ${++files}.db`)), clock, systemRandom)
    const calls: string[] = []
    const slow = new Proxy(store, {
      get(target, name: keyof KeyStore<SqliteDatabase>) {
        const method = target[name].bind(target) as (...args: unknown[]) => Promise<unknown>
        if (name !== 'claim' && name !== 'abandon') return method
        return async (...args: unknown[]) => {
          calls.push(name)
          const answer = await method(...args)
          if (name === 'claim') await sleep(clock, 1_000)
          return answer
        }
      },
    })
    const call = createIdempotent<SqliteDatabase>(slow, { clock })(
      request,
      () => assert.fail('it is too late'),
      {
        ttlMs: 1_000,
        waitMs: 0,
      },
    )
    const refused = assert.rejects(call, { code: 'ACQUIRE_TIMEOUT' })
    await clock.advance(10_000)
    await refused
    assert.deepEqual(calls, ['claim', 'claim', 'abandon'])
    const next = createIdempotent(store, { clock })(request, ({ isTakeover }) => isTakeover, { waitMs: 0 })
    assert.equal(await next, false, 'nothing was begun')
    await store.close()
  })

  test('G6 G11 a caller who goes away while another look at the key hangs is told at once, and never looks', async () => {
    const clock = createFakeClock()
    const store = new SqliteKeys(new DatabaseSync(join(folder, `gone ${++files}.db`)), clock, systemRandom)
    const gate = Promise.withResolvers<void>()
    let looks = 0
    const hanging = new Proxy(store, {
      get(target, name: keyof KeyStore<SqliteDatabase>) {
        const method = target[name].bind(target) as (...args: unknown[]) => Promise<unknown>
        if (name !== 'claim') return method
        return (...args: unknown[]) => {
          looks++
          return gate.promise.then(() => method(...args))
        }
      },
    })
    const idempotent = createIdempotent<SqliteDatabase>(hanging, { clock })
    const first = idempotent(request, () => 'done')
    await clock.advance(0)
    const controller = new AbortController()
    const reason = new Error('no longer needed')
    const gone = idempotent(request, () => assert.fail('gone'), { signal: controller.signal })
    await clock.advance(0)
    controller.abort(reason)
    await assert.rejects(gone, reason)
    gate.resolve()
    assert.equal(await first, 'done')
    await clock.advance(1_000)
    assert.equal(looks, 1)
    await store.close()
  })

  test.each(['settle', 'abandon'] as const)(
    'G11 of %s, which hangs: the caller is told within the time of a call, and it goes on behind',
    async (hanging) => {
      const clock = createFakeClock()
      const store = new SqliteKeys(new DatabaseSync(join(folder, `hangs ${++files}.db`)), clock, systemRandom)
      const gate = Promise.withResolvers<void>()
      const wrapped = new Proxy(store, {
        get(target, name: keyof KeyStore<SqliteDatabase>) {
          const method = target[name].bind(target) as (...args: unknown[]) => Promise<unknown>
          return name === hanging ? (...args: unknown[]) => gate.promise.then(() => method(...args)) : method
        },
      })
      const planted = new Error('planted')
      let answer: unknown
      createIdempotent<SqliteDatabase>(wrapped, { clock })(request, () => {
        if (hanging === 'abandon') throw planted
        return 'done'
      }).catch((error: unknown) => {
        answer = error
      })
      await clock.advance(defaults.callTimeoutMs - 1)
      assert.equal(answer, undefined)
      await clock.advance(1)
      if (hanging === 'abandon') assert.equal(answer, planted)
      else {
        const { code, outcome } = answer as unknown as BackendUnavailableError
        assert.deepEqual([code, outcome], ['BACKEND_UNAVAILABLE', 'unknown'])
      }
      assert.equal(clock.pendingTimers, 0)
      gate.resolve()
      await clock.advance(0)
      const next = createIdempotent(store, { clock })(request, () => 'again', { waitMs: 0 })
      assert.equal(await next, hanging === 'settle' ? 'done' : 'again')
      await store.close()
    },
  )

  test.each(['before', 'after'] as const)(
    'T13 of the settling (lost %s it was applied): it is settled again',
    async (when) => {
      const { idempotent } = lossy((call, count) => (call === 'settle' && count < 3 ? when : 'never'))
      let works = 0
      assert.equal(await idempotent(request, () => ++works), 1)
      assert.equal(await idempotent(request, () => ++works), 1)
    },
  )

  test.each(['before', 'after'] as const)(
    'T79 of the reading back (lost %s it was applied): the committed result is read again',
    async (when) => {
      const { idempotent, path } = lossy((call, count) => (call === 'abandon' && count < 3 ? when : 'never'))
      const database = new DatabaseSync(path)
      const result = await idempotent(request, async ({ store }) => {
        database.exec('BEGIN IMMEDIATE')
        await store(database, 'committed')
        database.exec('COMMIT')
        return 'returned'
      })
      assert.equal(result, 'committed')
      database.close()
    },
  )

  /** The end of a call, and after how long it comes by a clock of its own. */
  async function ending(clock: FakeClock, call: Promise<unknown>) {
    const startMs = clock.monotonicMs()
    let ended: { readonly how: unknown; readonly afterMs: number } | undefined
    const end = (how: unknown) => {
      ended = { how, afterMs: clock.monotonicMs() - startMs }
    }
    call.then(end, ({ code, outcome }) => end([code, outcome]))
    await clock.advance(2 * defaults.callTimeoutMs)
    return ended ?? assert.fail('it has not ended')
  }

  const storing = (path: string) => {
    const database = new DatabaseSync(path)
    return async ({ store }: IdempotentContext<SqliteDatabase>) => {
      database.exec('BEGIN IMMEDIATE')
      await store(database, 'committed')
      database.exec('COMMIT')
      database.close()
      return 'returned'
    }
  }

  test.each([
    ['is lost, and then the database is down', 'after', 'unknown'],
    ['never comes: the database is down', 'refused', 'not-applied'],
  ] as const)('G11 of the settling, which %s', async (_what, first, outcome) => {
    const clock = createFakeClock()
    const { idempotent } = lossy(
      (call, count) => (call !== 'settle' ? 'never' : count === 1 ? first : 'refused'),
      clock,
    )
    const { how, afterMs } = await ending(
      clock,
      idempotent(request, () => 'done'),
    )
    assert.deepEqual(how, ['BACKEND_UNAVAILABLE', outcome])
    assert.equal(afterMs, defaults.callTimeoutMs)
  })

  test.each(['refused', 'closed'] as const)(
    'G11 T79 of the reading back, which is %s: a result that was committed is not called "not applied"',
    async (when) => {
      const clock = createFakeClock()
      const { idempotent, store, path } = lossy((call) => (call === 'abandon' ? when : 'never'), clock)
      const { how } = await ending(clock, idempotent(request, storing(path)))
      assert.deepEqual(how, ['BACKEND_UNAVAILABLE', 'unknown'])
      assert.equal(await createIdempotent(store)(request, () => 'again'), 'committed')
    },
  )

  test('G11 T79 of the reading back, which is refused for almost 5 s: it is repeated for as long', async () => {
    const clock = createFakeClock()
    const openUntilMs = clock.monotonicMs() + defaults.callTimeoutMs - 500
    const isOpen = () => clock.monotonicMs() < openUntilMs
    const { idempotent, path } = lossy(
      (call) => (call === 'abandon' && isOpen() ? 'refused' : 'never'),
      clock,
    )
    const { how, afterMs } = await ending(clock, idempotent(request, storing(path)))
    assert.equal(how, 'committed')
    assert.ok(afterMs >= defaults.callTimeoutMs - 500 && afterMs < defaults.callTimeoutMs)
  })

  test('G11 of everything: the caller hears that the outcome is unknown, and the work’s own error is not replaced', async () => {
    const clock = createFakeClock()
    const settling = lossy((call) => (call === 'settle' ? 'before' : 'never'), clock)
    const { how } = await ending(
      clock,
      settling.idempotent(request, () => 1),
    )
    assert.deepEqual(how, ['BACKEND_UNAVAILABLE', 'unknown'])
    const abandoning = lossy((call) => (call === 'abandon' ? 'before' : 'never'))
    const planted = new Error('planted')
    await assert.rejects(
      abandoning.idempotent(request, () => Promise.reject(planted)),
      planted,
    )
    const claiming = lossy((call) => (call === 'claim' ? 'before' : 'never'))
    await assert.rejects(
      claiming.idempotent(request, () => 1, { waitMs: 50 }),
      { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' },
    )
  })
})
