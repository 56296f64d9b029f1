import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { Rig } from '../../../../test/postgres-advisory/rig.ts'
import { call, request, shared } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { FreeHints } from './free-hints.ts'

describe('hints that a key is free', () => {
  function setUp(share: () => Promise<boolean> = async () => true) {
    const clock = createFakeClock()
    const asked: string[] = []
    const hints = new FreeHints({
      clock,
      share: (key) => {
        asked.push(key)
        return share()
      },
      unshare: async (keys) => asked.push(`-${keys}`),
    })
    const told: string[] = []
    const wait = (waiter: string, key = '1') => hints.once(key, () => told.push(waiter))
    return { clock, hints, asked, told, wait }
  }

  test('G9 T28 one waiter is told of each release, the first; and none twice', async () => {
    const { clock, hints, asked, told, wait } = setUp()
    for (const waiter of ['a', 'b', 'c']) wait(waiter)
    await clock.settle()
    // It may have become free before the server knew of the waiters.
    expect([asked, told]).toEqual([['1'], ['a']])
    hints.freed('1', false)
    hints.freed('2', false)
    expect(told).toEqual(['a', 'b'])
  })

  test('T19 a hint that comes while the waiter is trying is kept for it', async () => {
    const { clock, hints, told, wait } = setUp()
    wait('a')
    await clock.settle()
    hints.tell('1')
    hints.tell('1')
    expect(told).toEqual(['a'])
    wait('a again')
    wait('b')
    expect(told).toEqual(['a', 'a again'])
  })

  test('while other processes wait, they may try first', async () => {
    const { clock, hints, told, wait } = setUp()
    wait('a')
    await clock.settle()
    wait('b')
    hints.freed('1', true)
    expect(told).toEqual(['a'])
    await clock.advance(100)
    expect(told).toEqual(['a', 'b'])
  })

  test('a waiter that gave up is not told, and its key is given back two keep-alives later', async () => {
    const { clock, hints, asked, told, wait } = setUp()
    wait('a')
    await clock.settle()
    wait('b')()
    hints.tell('1')
    expect(told).toEqual(['a'])
    await hints.tidy()
    await hints.tidy()
    expect(asked).toEqual(['1', '-1'])
    wait('c')
    expect(asked).toEqual(['1', '-1', '1'])
  })

  test('a server that cannot share the lock is asked again after the next keep-alive, however many wait, and tells nobody', async () => {
    const { clock, hints, asked, told, wait } = setUp(() => Promise.reject(new Error('out of shared memory')))
    for (const waiter of ['a', 'b', 'c']) {
      wait(waiter)
      await clock.settle()
    }
    expect([asked, told]).toEqual([['1'], []])
    // A release here is told all the same.
    hints.freed('1', false)
    expect(told).toEqual(['a'])
    await hints.tidy()
    wait('d')
    await clock.settle()
    expect([asked, told]).toEqual([['1', '1'], ['a']])
  })

  test('the keys that are waited for with a hint are limited', () => {
    const { asked, wait } = setUp()
    for (let key = 0; key < 1_000; key++) wait('a', String(key))
    expect(asked).toHaveLength(256)
  })

  test.each([
    ['was being looked at', async () => false],
    ['could not be shared', () => Promise.reject(new Error('out of shared memory'))],
  ])('T81 a key whose lock %s takes no place of another once its waiters have gone', async (_, share) => {
    const { clock, hints, asked, wait } = setUp(share)
    const leaving = Array.from({ length: 256 }, (_, key) => wait('a', String(key)))
    await clock.settle()
    for (const leave of leaving) leave()
    for (const _ of ['those that have waited', 'those that have not']) await hints.tidy()
    const before = asked.length
    wait('b', 'another')
    // Nothing was shared, so nothing is given back.
    expect([before, ...asked.slice(before)]).toEqual([256, 'another'])
  })
})

describe.runIf(wanted('postgres'))('waiters of postgres-advisory', () => {
  let server: Server
  let rig: Rig
  beforeAll(async () => {
    server = await startPostgres()
    rig = new Rig(server)
  })
  afterAll(async () => {
    await rig?.[Symbol.asyncDispose]()
    await server?.stop()
  })

  const open = async (namespace: string) => {
    const backend = await rig.backend({ namespace })
    return backend.openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'test' }, call())
  }
  type Session = Awaited<ReturnType<typeof open>>
  /** Counts the hints that a waiter gets, which asks for the next one each time. */
  const waiting = (session: Session, name: string) => {
    const hints = { count: 0 }
    const again = () =>
      session.onceFree?.(name, () => {
        hints.count++
        again()
      })
    again()
    return hints
  }

  test.for(['exclusive', 'shared'])(
    'a release of an %s lock tells a waiter of another process',
    async (mode) => {
      const [one, other] = [namingGrants(await open(mode)), await open(mode)]
      const asked = mode === 'shared' ? shared('x') : request('x')
      await one.tryAcquire(asked, call())
      const hints = waiting(other, 'x')
      await expect.poll(() => hints.count).toBe(1)
      // Alone in its statement, and together with others.
      await one.release(asked, { keepForMs: 0 }, call())
      await expect.poll(() => hints.count).toBe(2)
      const both = [asked, request('y')].map((each) => ({ ...each, attempt: `${each.attempt}2` }))
      await Promise.all(both.map((each) => one.tryAcquire(each, call())))
      await Promise.all(both.map((each) => one.release(each, { keepForMs: 0 }, call())))
      await expect.poll(() => hints.count).toBe(3)
    },
  )

  test('G9 the session that freed a key gives others a head start: its own notification does not tell its waiters', async () => {
    const clock = createFakeClock()
    const here = await rig.backend({ namespace: 'start', clock })
    const session = () => here.openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'test' }, call())
    const [own, mate, other] = [await session(), await session(), await open('start')]
    const one = namingGrants(own)
    const asked = [request('x'), request('y')] as const
    for (const each of asked) await one.tryAcquire(each, call())
    const hints = [waiting(own, 'x'), waiting(mate, 'y'), waiting(other, 'x')] as const
    const counts = () => hints.map(({ count }) => count)
    await expect.poll(counts).toEqual([1, 1, 1])
    for (const each of asked) await one.release(each, { keepForMs: 0 }, call())
    // The mate gets the hint for the second key over the same connection as the hint for the first.
    await expect.poll(counts).toEqual([1, 2, 2])
    await clock.advance(5)
    expect(counts()).toEqual([2, 2, 2])
  })

  test('a hint leaves nothing behind: locks of waiters go with the session, and a release without waiters notifies nobody', async () => {
    const [one, other] = [namingGrants(await open('left')), await open('left')]
    const asked = request('x')
    await one.tryAcquire(asked, call())
    const hints = waiting(other, 'x')
    await expect.poll(() => hints.count).toBe(1)
    await other.close(call())
    const byHand = await rig.byHand()
    const heard: string[] = []
    byHand.on('notification', ({ payload }) => heard.push(payload ?? ''))
    await byHand.query('LISTEN holdfast_advisory')
    await one.release(asked, { keepForMs: 0 }, call())
    await byHand.query('SELECT 1')
    await one.close(call())
    expect(heard).toEqual([])
    const left = await rig.sql("SELECT FROM holdfast.advisory_connections WHERE namespace = 'left'")
    expect(left).toEqual([])
  })

  test('T28 two processes with many waiters take turns: none keeps a name for itself', async () => {
    // Their head start is as long as a busy machine needs for a notification and a try.
    const clock = createFakeClock()
    const open = () => rig.locker({ namespace: 'turns', clock })
    const lockers = [await open(), await open()]
    const first = await (await open()).acquire('x')
    const order: number[] = []
    const waiter = async (process: number) => {
      for (let turn = 0; turn < 5; turn++) {
        const lease = await lockers[process]?.acquire('x')
        order.push(process)
        await lease?.release()
      }
    }
    const done = Promise.all([0, 1].flatMap((process) => [1, 2, 3, 4].map(() => waiter(process))))
    // Both processes wait at the server.
    const sharing = `SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted`
    await expect.poll(async () => (await rig.sql(sharing)).length).toBeGreaterThan(1)
    await first.release()
    let isDone = false
    const hasEnded = done.finally(() => {
      isDone = true
    })
    while (!isDone) {
      await new Promise((resolve) => setTimeout(resolve, 100))
      await clock.advance(5)
    }
    await hasEnded
    expect(order).toHaveLength(40)
    const crossings = order.filter((process, index) => index > 0 && order[index - 1] !== process)
    expect(crossings.length).toBeGreaterThan(2)
  })

  test('the diagnosis tells that waiters poll while nothing listens', async () => {
    const backend = await rig.backend({ namespace: 'deaf' })
    const ours = await backend.openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'test' }, call())
    const codes = async () => (await backend.diagnose(call())).map(({ code }) => code)
    expect(await codes()).not.toContain('HOLDFAST_POSTGRES_POLLING')
    const ended = await rig.sql(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'",
    )
    expect(ended.length).toBeGreaterThan(0)
    await expect.poll(codes).toContain('HOLDFAST_POSTGRES_POLLING')
    await ours.keepAlive({ held: [], waiting: [] }, call())
    await expect.poll(codes).not.toContain('HOLDFAST_POSTGRES_POLLING')
  })
})
