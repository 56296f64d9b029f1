// How waiters learn of their grant: by a notification, or by a look.
import { startProxy } from 'holdfast-lab/faults'
import { type Server, startPgBouncer, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { libraries } from '../../../../test/postgres/clients.ts'
import { call, exclusive, openSession, Stage, take, until } from '../../../../test/postgres/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import type { AcquireRequest, BackendSession } from '../../../spi.ts'
import { enqueued } from '../../../testing/enqueued.ts'

/** Queued, with a promise of what becomes of it. */
async function line(session: BackendSession<'fenced'>, request: AcquireRequest) {
  const queued = Promise.withResolvers<void>()
  const turn = enqueued(session, request, callWith(undefined, { queued: queued.resolve }))
  turn?.catch(() => {})
  await queued.promise
  return async () => {
    const result = await turn
    if (result?.kind !== 'granted') throw new Error(`${request.name} was ${result?.kind}`)
    return result.grant
  }
}

describe.runIf(wanted('postgres'))('postgres waiters', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  test('G9 a waiter that died behind others gives them no reason to look', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'behind' })
    const sessions = [
      await openSession(backend),
      await openSession(backend),
      await openSession(backend),
    ] as const
    await take(sessions[0], exclusive('x'))
    for (const session of sessions.slice(1)) await line(session, exclusive('x'))
    const operator = await stage.operator()
    const dueInMs = async () => {
      const { rows } = await operator.query("SELECT behind.due_in('default', 'x') AS ms")
      return rows[0].ms as number
    }
    const before = await dueInMs()
    await operator.query(
      `UPDATE behind.sessions SET ended = 'expired', ended_at = now()
      WHERE no = (SELECT session FROM behind.waiters ORDER BY place DESC LIMIT 1)`,
    )
    expect((await dueInMs()) / before).toBeGreaterThan(0.5)
  })

  for (const library of libraries) {
    test(`are told by the server, with ${library.name}: while one hears, it does not ask`, async () => {
      await using stage = new Stage(server.url)
      const namespace = `told/${library.name}`
      const [mine, other] = [
        await stage.backend({ library, namespace }),
        await stage.backend({ library, namespace }),
      ]
      const [holder, waiter] = [await openSession(mine), await openSession(other)]
      const held = exclusive('x')
      await take(holder, held)
      const first = await line(waiter, exclusive('x'))
      await until('it hears', () => other.hears)
      const looks = other.statistics.looks
      await holder.release(held, { keepForMs: 0 }, call())
      expect((await first()).name).toBe('x')
      // A look that was under way when it began to hear may have found the grant first.
      await until('it is told', () => other.statistics.notificationsReceived === 1)
      expect(other.statistics.looks - looks).toBeLessThanOrEqual(1)
    })

    test(`T19 LISTEN lost and regained, with ${library.name}: it listens again, and what was missed is found`, async () => {
      await using stage = new Stage(server.url)
      const namespace = `regained/${library.name}`
      const [mine, other] = [
        await stage.backend({ library, namespace }),
        await stage.backend({ library, namespace }),
      ]
      const [holder, waiter] = [await openSession(mine), await openSession(other)]
      const held = exclusive('x')
      await take(holder, held)
      const first = await line(waiter, exclusive('x'))
      await until('it hears', () => other.hears)
      const operator = await stage.operator()
      await operator.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'listen %'",
      )
      // Released while no process listens.
      await until('it does not hear', () => !other.hears)
      await holder.release(held, { keepForMs: 0 }, call())
      expect((await first()).name).toBe('x')
      const second = exclusive('y')
      await take(holder, second)
      const next = await line(waiter, exclusive('y'))
      await until('it hears again', () => other.hears)
      expect(other.statistics.listens).toBeGreaterThan(1)
      await holder.release(second, { keepForMs: 0 }, call())
      expect((await next()).name).toBe('y')
    })

    test.runIf(wanted('pgbouncer'))(
      `a pooler that swallows notifications is found out, with ${library.name}: waiters look`,
      async () => {
        await using bouncer = await startPgBouncer({ postgres: server })
        await using stage = new Stage(bouncer.url)
        const namespace = `pooled/${library.name}`
        const [mine, other] = [
          await stage.backend({ library, namespace, pollMs: 20, clients: { prepare: false } }),
          await stage.backend({ library, namespace, pollMs: 20, clients: { prepare: false } }),
        ]
        const [holder, waiter] = [await openSession(mine), await openSession(other)]
        const held = exclusive('x')
        await take(holder, held)
        const first = await line(waiter, exclusive('x'))
        await until('it has asked', () => other.statistics.looks > 3)
        expect(other.statistics.listens).toBe(1)
        expect(other.hears).toBe(false)
        await holder.release(held, { keepForMs: 0 }, call())
        expect((await first()).name).toBe('x')
        expect(other.statistics.notificationsReceived).toBe(0)
      },
    )
  }

  test('T33 a listening connection in a black hole is found out: it asks until it hears again', async () => {
    await using proxy = await startProxy(server)
    await using stage = new Stage(server.url)
    const url = `postgres://postgres@${proxy.host}:${proxy.port}/postgres`
    const namespace = 'black hole'
    const [mine, other] = [
      await stage.backend({ namespace }),
      await stage.backend({ namespace, url, pollMs: 20 }),
    ]
    const [holder, waiter] = [await openSession(mine, 60_000), await openSession(other, 60_000)]
    const held = exclusive('x')
    await take(holder, held)
    const first = await line(waiter, exclusive('x'))
    await until('it hears', () => other.hears)
    proxy.drop('down')
    await until('it has noticed', () => !other.hears)
    await holder.release(held, { keepForMs: 0 }, call())
    proxy.heal()
    expect((await first()).name).toBe('x')
  })

  test('G9 hand-over within one process needs no notification', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ namespace: 'within' })
    const session = await openSession(backend)
    const held = exclusive('x')
    await take(session, held)
    const turns = [await line(session, exclusive('x')), await line(session, exclusive('x'))]
    await session.release(held, { keepForMs: 0 }, call())
    const { attempt } = await (turns[0] as () => Promise<{ attempt: string }>)()
    expect(backend.statistics.notificationsReceived).toBe(0)
    await session.release({ name: 'x', attempt }, { keepForMs: 0 }, call())
    await (turns[1] as () => Promise<unknown>)()
  })
})
