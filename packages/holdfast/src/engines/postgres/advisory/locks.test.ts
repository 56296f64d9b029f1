import { type Server, startPgBouncer, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { advisoryLibraries as libraries } from '../../../../test/postgres/clients.ts'
import { Rig } from '../../../../test/postgres-advisory/rig.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { call, request, shared } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { openPostgresAdvisory } from './assemble.ts'
import { defaultKey } from './keys.ts'

describe.runIf(wanted('postgres'))('postgres-advisory', () => {
  let server: Server
  let rig: Rig
  beforeAll(async () => {
    server = await startPostgres({ settings: { max_locks_per_transaction: '10', max_connections: '120' } })
    rig = new Rig(server)
  })
  afterAll(async () => {
    await rig?.[Symbol.asyncDispose]()
    await server?.stop()
  })

  const session = async (options: Parameters<Rig['backend']>[0] = {}, ttlMs = 30_000) => {
    const backend = await rig.backend(options)
    return backend.openSession({ id: newSessionId(), ttlMs, holder: 'test' }, call()).then(namingGrants)
  }

  describe('with others who lock by hand', () => {
    test('a key function of the user’s own excludes with them, in both directions', async () => {
      const byHand = await rig.byHand()
      const ours = await session({ namespace: 'by-hand', key: (name) => BigInt(name.length) })
      await byHand.query('SELECT pg_advisory_lock(5)')
      expect((await ours.tryAcquire(request('abcde'), call())).kind).toBe('busy')
      await byHand.query('SELECT pg_advisory_unlock(5)')
      expect((await ours.tryAcquire(request('abcde'), call())).kind).toBe('granted')
      const { rows } = await byHand.query('SELECT pg_try_advisory_lock(5) AS got')
      expect(rows).toEqual([{ got: false }])
    })

    test('hashtext: the server computes the key, as pg_advisory_lock(hashtext(…)) does', async () => {
      const byHand = await rig.byHand()
      const ours = await session({ namespace: 'hashtext', key: 'hashtext' })
      const asked = request('naïve 日本')
      expect((await ours.tryAcquire(asked, call())).kind).toBe('granted')
      const tryByHand = () =>
        byHand
          .query('SELECT pg_try_advisory_lock(hashtext($1)) AS got', ['naïve 日本'])
          .then(({ rows }) => rows[0])
      expect(await tryByHand()).toEqual({ got: false })
      await ours.release(asked, { keepForMs: 0 }, call())
      expect(await tryByHand()).toEqual({ got: true })
      expect((await ours.tryAcquire(request('naïve 日本'), call())).kind).toBe('busy')
    })

    test('T49 a collision of keys is told apart from contention, across sessions and within one', async () => {
      const key = () => 77n
      const [one, other] = [
        await session({ namespace: 'collide', key }),
        await session({ namespace: 'collide', key }),
      ]
      const held = request('first')
      await one.tryAcquire(held, call())
      expect((await other.tryAcquire(request('first'), call())).kind).toBe('busy')
      for (const each of [one, other]) {
        const asked = each.tryAcquire(request('second'), call())
        await expect(asked).rejects.toThrow(/"second" has the same advisory key as "first" \(77\)/)
        await expect(asked).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      }
      await one.release(held, { keepForMs: 0 }, call())
      expect((await other.tryAcquire(request('second'), call())).kind).toBe('granted')
    })
  })

  describe('one session', () => {
    test('T70 PostgreSQL would grant it again to the same session; we do not, and one unlock frees it', async () => {
      const ours = await session({ namespace: 'again' })
      const first = request('x')
      await ours.tryAcquire(first, call())
      const more = await Promise.all([1, 2, 3].map(() => ours.tryAcquire(request('x'), call())))
      expect(more.map(({ kind }) => kind)).toEqual(['busy', 'busy', 'busy'])
      expect((await ours.tryAcquire(shared('x'), call())).kind).toBe('busy')
      await ours.release(first, { keepForMs: 0 }, call())
      const byHand = await rig.byHand()
      const { rows } = await byHand.query('SELECT pg_try_advisory_lock($1) AS got', [
        String(defaultKey('again', 'x')),
      ])
      expect(rows).toEqual([{ got: true }])
    })

    test('T70 readers of one session share one lock of the server, and the last of them frees it', async () => {
      const [ours, other] = [await session({ namespace: 'readers' }), await session({ namespace: 'readers' })]
      const readers = Array.from({ length: 5 }, () => shared('x'))
      const granted = await Promise.all(readers.map((reader) => ours.tryAcquire(reader, call())))
      expect(granted.every(({ kind }) => kind === 'granted')).toBe(true)
      for (const reader of readers) {
        expect((await other.tryAcquire(request('x'), call())).kind).toBe('busy')
        expect(await ours.release(reader, { keepForMs: 0 }, call())).toBe('released')
      }
      expect((await other.tryAcquire(request('x'), call())).kind).toBe('granted')
    })

    test('requests that come at once leave in few statements', async () => {
      const backend = await rig.backend({ namespace: 'many' })
      const ours = await backend
        .openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
        .then(namingGrants)
      const before = backend.statistics.statements
      const asked = Array.from({ length: 200 }, (_, index) => request(`item ${index}`))
      const granted = await Promise.all(asked.map((each) => ours.tryAcquire(each, call())))
      await Promise.all(asked.map((each) => ours.release(each, { keepForMs: 0 }, call())))
      expect(granted.every(({ kind }) => kind === 'granted')).toBe(true)
      expect(backend.statistics.statements - before).toBeLessThanOrEqual(8)
    })

    test('grants and releases leave no garbage: records are overwritten in place', async () => {
      const ours = await session({ namespace: 'garbage' })
      const pages = async () =>
        Number(
          (
            await rig.sql<{ n: string }>("SELECT pg_relation_size('holdfast.advisory_holders') / 8192 AS n")
          )[0]?.n,
        )
      const pairs = async (count: number) => {
        for (let turn = 0; turn < count; turn++) {
          const asked = [request('x'), request(`y${turn % 3}`)]
          for (const each of asked) expect((await ours.tryAcquire(each, call())).kind).toBe('granted')
          for (const each of asked) await ours.release(each, { keepForMs: 0 }, call())
        }
      }
      await pairs(20)
      const before = await pages()
      await pairs(400)
      expect((await pages()) - before).toBeLessThanOrEqual(2)
    })

    test('a lock table that is full refuses what does not fit, says what to do, and keeps what is held', async () => {
      const ours = await session({ namespace: 'full' })
      const asked = Array.from({ length: 6_000 }, (_, index) => request(`item ${index}`))
      const outcomes = await Promise.allSettled(asked.map((each) => ours.tryAcquire(each, call())))
      const held = asked.filter((_, index) => outcomes[index]?.status === 'fulfilled')
      const refused = outcomes.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []))
      expect(refused.length).toBeGreaterThan(0)
      expect(String(refused[0])).toMatch(/max_locks_per_transaction/)
      expect(refused.every((error) => error.outcome === 'not-applied')).toBe(true)
      const kept = await ours.keepAlive({ held, waiting: [] }, call())
      expect(kept).toMatchObject({ kind: 'alive', lost: [], unlisted: [] })
      await ours.close(call())
    })
  })

  describe('tokens', () => {
    test('T67 T37 a token is drawn after the lock: under contention they rise in the order of the grants', async () => {
      const sessions = await Promise.all([1, 2, 3, 4].map(() => session({ namespace: 'tokens' })))
      let last = 0n
      let turns = 0
      const work = sessions.map(async (each) => {
        for (let turn = 0; turn < 40; turn++) {
          const asked = request('x')
          let result = await each.tryAcquire(asked, call())
          while (result.kind === 'busy') result = await each.tryAcquire(asked, call())
          if (result.kind !== 'granted') throw new Error('it was not granted')
          expect(result.grant.token).toBeGreaterThan(last)
          last = result.grant.token
          turns++
          await each.release(asked, { keepForMs: 0 }, call())
        }
      })
      await Promise.all(work)
      expect(turns).toBe(160)
    })

    test('T68 G2 tokens rise over a crash, also when another had logged them and not yet waited for the disk', async () => {
      await using crashing = await startPostgres({
        fsync: true,
        settings: { synchronous_commit: 'off', wal_writer_delay: '10s' },
      })
      let last = 0n
      for (let crash = 0; crash < 3; crash++) {
        await using each = new Rig(crashing)
        const backend = await each.backend()
        const ours = await backend
          .openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
          .then(namingGrants)
        for (let turn = 0; turn < 40; turn++) {
          // Its commit does not wait, so what the sequence logs ahead here is in memory only for a while.
          const other = await each.sql<{ token: string }>(
            "SELECT nextval('holdfast.advisory_tokens') AS token",
          )
          const asked = request('x')
          const result = await ours.tryAcquire(asked, call())
          if (result.kind !== 'granted') throw new Error(`it was ${result.kind}`)
          expect(result.grant.token).toBeGreaterThan(last)
          expect(result.grant.token).toBeGreaterThan(BigInt(other[0]?.token ?? 0))
          last = result.grant.token
          await ours.release(asked, { keepForMs: 0 }, call())
        }
        await crashing.kill()
        await crashing.restart()
      }
    })
  })

  describe.runIf(wanted('pgbouncer'))('behind PgBouncer', () => {
    test.for(libraries)(
      'T50 $name: a transaction pooler is refused, with the reason and the way out',
      async ({ open }) => {
        await using bouncer = await startPgBouncer({ postgres: server })
        await using opened = open(bouncer.url)
        const opening = openPostgresAdvisory({ client: opened.client })
        await expect(opening).rejects.toMatchObject({ code: 'UNSUPPORTED' })
        await expect(opening).rejects.toThrow(/pooler in transaction mode.*directly.*holdfast\/postgres/s)
        const left = await rig.sql(
          "SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE application_name = 'app - 127.0.0.1')",
        )
        expect(left).toEqual([])
      },
    )

    test('T50 a transaction pooler that hides while others keep it busy is noticed by the statements themselves', async () => {
      await using bouncer = await startPgBouncer({ postgres: server, settings: { server_round_robin: '1' } })
      const pool = new pg.Pool({ connectionString: bouncer.url })
      const direct = new pg.Pool({ connectionString: server.url })
      // Looks direct at first, and then the way to the server changes: as if the pooler had hidden from the first look.
      const backend = await openPostgresAdvisory({ client: direct, namespace: 'hidden' })
      Object.assign(direct.options, pool.options)
      const asked = { id: newSessionId(), ttlMs: 30_000, holder: 'test' }
      const granted: string[] = []
      try {
        const ours = await backend.openSession(asked, call()).then(namingGrants)
        for (let turn = 0; turn < 60; turn++) {
          // Not always as many: with as many as there are connections, everybody would get the same one again.
          const others = Array.from({ length: 1 + (turn % 4) }, () => pool.query('SELECT pg_sleep(0.005)'))
          const disturbing = Promise.all(others)
          const result = await ours.tryAcquire(request(`x${turn}`), call())
          granted.push(result.kind)
          await disturbing
          if (result.kind === 'session-gone') break
        }
        expect(granted.at(-1)).toBe('session-gone')
      } finally {
        await backend[Symbol.asyncDispose]()
        await pool.end()
        await direct.end()
      }
    })

    test('a pool in session mode will do', async () => {
      await using bouncer = await startPgBouncer({ postgres: server, poolMode: 'session' })
      const pool = new pg.Pool({ connectionString: bouncer.url, max: 4 })
      const backend = await openPostgresAdvisory({ client: pool, namespace: 'session-pool' })
      const ours = await backend
        .openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
        .then(namingGrants)
      const asked = request('x')
      expect((await ours.tryAcquire(asked, call())).kind).toBe('granted')
      expect(await ours.keepAlive({ held: [asked], waiting: [] }, call())).toMatchObject({
        kind: 'alive',
        lost: [],
      })
      await backend[Symbol.asyncDispose]()
      await pool.end()
    })
  })

  test('a session cannot be carried on by another process, and that is said', async () => {
    const backend = await rig.backend()
    const attaching = backend.attachSession({ id: 'x' }, call())
    await expect(attaching).rejects.toSatisfy((error) => isHoldfastError(error, 'UNSUPPORTED'))
  })
})
