// Traps that take a server of one's own: stopped, cut off, or with another idea of the time.
import { createClock } from 'holdfast-lab/faults'
import { startPooledPostgres, startPostgres, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { libraries } from '../../../../test/postgres/clients.ts'
import { call, exclusive, openSession, Stage, take, until } from '../../../../test/postgres/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { memoryGuard } from '../../../guards/memory.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import { createLocker } from '../../../locker/locker.ts'

describe.runIf(wanted('postgres'))('postgres', () => {
  test('T6 a call that waits for the lock of a name longer than its session lives gets nothing', async () => {
    await using server = await startPostgres()
    await using stage = new Stage(server.url)
    const backend = await stage.backend()
    const session = await openSession(backend, 1_000)
    const operator = await stage.operator()
    await operator.query(`BEGIN; SELECT holdfast.lock_names('default', '{x}')`)
    const taking = session.tryAcquire(exclusive('x'), call())
    await until('it waits, and its session is over', async () => {
      const { rows } = await operator.query(`SELECT 1 FROM pg_locks l, holdfast.sessions z
        WHERE l.locktype = 'advisory' AND NOT l.granted AND z.expires_at <= clock_timestamp()`)
      return rows.length > 0
    })
    await operator.query('COMMIT')
    expect((await taking).kind).toBe('session-gone')
    expect(await listAll(backend, '', call())).toEqual([])
  })

  test('T9 G5 when the server’s clock is stepped there may be two believers, and the guard refuses the older', async () => {
    const clock = createClock()
    await using server = await startPostgres({ clock })
    await using stage = new Stage(server.url)
    const [mine, other] = [await stage.backend(), await stage.backend()]
    const [locker, rival] = [createLocker(mine, { ttlMs: 600_000 }), createLocker(other, { ttlMs: 600_000 })]
    const lease = await locker.acquire('x')
    clock.step(3_600_000)
    const successor = await rival.acquire('x')
    expect(lease.state).toBe('held')
    expect(successor.fence.token).toBeGreaterThan(lease.fence.token)
    const guard = memoryGuard()
    await guard.run(successor, async () => {})
    await expect(guard.run(lease, async () => {})).rejects.toMatchObject({ code: 'FENCE_STALE' })
    // A step back revives nothing: what was over stays over.
    clock.step(-3_600_000)
    expect(await locker.check(lease.fence)).toBe(false)
    expect(await lease.renew().catch((error: { code: string }) => error.code)).toBe('LEASE_LOST')
    await Promise.all([locker.close(), rival.close()])
  })

  for (const library of libraries) {
    test(`T16 G3 a frozen server: the lease is lost at its deadline all the same (${library.name})`, async () => {
      await using server = await startPostgres()
      await using stage = new Stage(server.url)
      const backend = await stage.backend({ library })
      const locker = createLocker(backend, { ttlMs: 1_500, callTimeoutMs: 400 })
      const lease = await locker.acquire('x')
      await server.pause()
      const { promise: aborted, resolve } = Promise.withResolvers<number>()
      lease.signal.addEventListener('abort', () => resolve(lease.remainingMs))
      expect(await aborted).toBe(0)
      expect(lease.state).toBe('lost')
      await server.resume()
      const again = await locker.acquire('x', { waitMs: 20_000 })
      expect(again.fence.token).toBeGreaterThan(lease.fence.token)
      await again.release()
      await locker.close()
    })

    test(`T56 G11 a server that is down is an error, never an answer (${library.name})`, async () => {
      await using server = await startPostgres()
      await using stage = new Stage(server.url)
      const backend = await stage.backend({ library, clients: { fetchTypes: false } })
      const session = await openSession(backend)
      const held = exclusive('x')
      const token = await take(session, held)
      await server.kill()
      const limited = () => callWith(AbortSignal.timeout(5_000))
      const down = { code: 'BACKEND_UNAVAILABLE' }
      await expect(backend.inspect('x', limited())).rejects.toMatchObject(down)
      await expect(backend.list('', { limit: 10 }, limited())).rejects.toMatchObject(down)
      const holder = { name: 'x', id: held.attempt.slice(0, 22), token }
      await expect(backend.check(holder, limited())).rejects.toMatchObject(down)
      await expect(session.tryAcquire(exclusive('y'), limited())).rejects.toMatchObject(down)
      await expect(session.release(held, { keepForMs: 0 }, limited())).rejects.toMatchObject(down)
    })

    test.runIf(wanted('pgbouncer'))(
      `T50 behind a transaction pooler nothing stays locked in the server when all clients are gone (${library.name})`,
      async () => {
        await using pooled = await startPooledPostgres()
        await using watching = new Stage(pooled.postgres.url)
        const operator = await watching.operator()
        {
          await using stage = new Stage(pooled.url)
          const sessions = []
          for (let i = 0; i < 3; i++)
            sessions.push(await openSession(await stage.backend({ library, clients: { prepare: false } })))
          const held = await Promise.all(
            sessions.map(async (session, i) => take(session, exclusive(`n${i}`))),
          )
          expect(new Set(held).size).toBe(3)
          const results = await Promise.all(
            sessions.map((session) => session.tryAcquire(exclusive('n0'), call())),
          )
          expect(results.map(({ kind }) => kind)).toEqual(['busy', 'busy', 'busy'])
        }
        const { rows } = await operator.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'")
        expect(rows).toEqual([])
      },
    )
  }
})
