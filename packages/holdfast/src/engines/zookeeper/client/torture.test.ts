/**
 * Three members that answer with resets, half frames, garbage, silence and good answers, by a seed. Whatever they do: each call settles
 * within its limit with an outcome that is true, nothing is left in flight, and the client works when they do.
 */
import { describe, expect, test } from 'vitest'
import { newSeed } from '../../../../test/seed.ts'
import { names, TortureMember, World } from '../../../../test/zookeeper/torture.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import { type Session, ZooKeeperClient } from './index.ts'

const STEPS = 600
/** Of the fake clock. More than all limits of the client together. */
const LONG_MS = 60_000
/** Of this process, which is also that of the servers. */
const MAX_GROWTH = 50 * 2 ** 20

const kinds = ['write', 'multi', 'read', 'prolong', 'watch', 'refused'] as const
type Kind = (typeof kinds)[number]

interface Asked {
  readonly kind: Kind
  readonly number: number
  readonly call: Cancellation
  settled?: 'answered' | 'gone' | 'not-applied' | 'unknown'
  wrong?: unknown
  told: number
}

/** The number in the answer; null: the session has gone. */
async function asked(session: Session, one: Asked): Promise<number | null> {
  const { kind, number, call } = one
  const path = `/n${number}`
  const write = { op: 'setData', path, data: '' } as const
  if (kind === 'prolong') {
    const prolonged = await session.prolong([write], call)
    const [reply] = prolonged?.replies ?? []
    return reply?.ok ? reply.stat.version : null
  }
  if (kind === 'refused') {
    const reply = await session.ask({ op: 'delete', path }, call)
    return !reply.ok && reply.code === 'session-gone' ? null : number
  }
  if (kind === 'multi') {
    const reply = await session.ask({ op: 'multi', parts: [write, write] }, call)
    return reply.ok ? (reply.results[1]?.stat?.version ?? 0) : null
  }
  const read = { op: 'exists', path } as const
  if (kind === 'watch') {
    const reply = await session.watch(read, () => one.told++, call)
    return reply.ok ? reply.stat.version : null
  }
  const reply = await session.ask(kind === 'write' ? write : read, call)
  return reply.ok ? reply.stat.version : null
}

function memoryInUse(): number {
  globalThis.gc?.()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

describe('members that behave badly in every way', { timeout: 300_000 }, () => {
  test.each([
    ['without credentials', {}],
    ['with credentials', { username: 'ada', password: 'secret' }],
  ])('T96 T103 each call settles with a true outcome, and nothing is left (%s)', async (_what, user) => {
    const seed = newSeed()
    const label = `seed ${seed}`
    const random = seededRandom(seed)
    const clock = createFakeClock()
    const world = new World(random)
    await using stack = new AsyncDisposableStack()
    const members: TortureMember[] = []
    for (let count = 0; count < 3; count++) members.push(stack.use(await TortureMember.start(world)))
    const hosts = members.map(({ host }) => host)
    const client = new ZooKeeperClient('zookeeper', { hosts, acl: 'open', ...user }, clock, random)
    stack.defer(() => client.close())
    const before = memoryInUse()

    let session: Session | undefined
    let opened = 0
    let isOpening = false
    const open = async () => {
      isOpening = true
      const call = new Cancellation()
      clock.setTimer(5_000, () => call.cancel(new Error('its limit')))
      const next = await client.open(6_000, call).catch((error: unknown) => {
        if (!isHoldfastError(error)) throw error
      })
      if (next) opened++
      session?.drop()
      session = next ?? undefined
      isOpening = false
    }
    const all: Asked[] = []
    const start = (on: Session) => {
      const kind = kinds[Math.floor(random.fraction() * kinds.length)] ?? 'read'
      const one: Asked = { kind, number: all.length + 1, call: new Cancellation(), told: 0 }
      all.push(one)
      asked(on, one).then(
        (number) => {
          one.settled = number === null ? 'gone' : 'answered'
          if (number !== null && number !== one.number) one.wrong = `the answer of ${number}`
        },
        (error: unknown) => {
          if (isHoldfastError(error, 'BACKEND_UNAVAILABLE')) one.settled = error.outcome
          // Another error of the library's: what ZooKeeper refuses for good.
          else if (isHoldfastError(error)) one.settled = 'not-applied'
          else one.wrong = error
        },
      )
      if (random.fraction() < 0.8)
        clock.setTimer(random.fraction() * 2_000, () => one.call.cancel(new Error('its limit')))
    }
    const late = () => all.filter(({ call, settled, wrong }) => call.cancelled && !settled && !wrong)
    const step = async (ms: number) => {
      await clock.advance(ms)
      await new Promise((resolve) => setTimeout(resolve, 2))
    }

    for (let count = 0; count < STEPS; count++) {
      if (session === undefined || session.isGone) void (isOpening || open())
      else for (let more = random.fraction() * 8; more > 1; more--) start(session)
      await step(random.fraction() * 200)
      expect(late(), `${label}: cancelled, and not settled`).toEqual([])
    }
    world.isGood = true
    for (let passed = 0; passed < LONG_MS; passed += 500) await step(500)

    const times = (one: Asked) => world.served.get(one.number) ?? 0
    const none = (what: string, isFound: (one: Asked) => boolean) =>
      expect(all.filter(isFound), `${label}: ${what}`).toEqual([])
    none('not settled', ({ settled }) => settled === undefined)
    none('wrong', ({ wrong }) => wrong !== undefined)
    none('writes that were served twice', (one) => one.kind !== 'prolong' && times(one) > 1)
    none(
      'served, and said to be not applied',
      (one) => one.settled === 'not-applied' && times(one) > 0 && one.kind !== 'prolong',
    )
    none('answered by nobody', (one) => one.settled === 'answered' && times(one) === 0)
    none('told twice', ({ told }) => told > 1)
    expect(
      names.filter((name) => !world.given.has(name)),
      `${label}: not given`,
    ).toEqual([])
    const outcomes = new Set(all.map(({ settled }) => settled))
    for (const outcome of ['answered', 'not-applied', 'unknown'] as const) expect(outcomes).toContain(outcome)
    expect(opened, `${label}: sessions`).toBeGreaterThan(0)

    // The client works, and what it has left is gone.
    if (session === undefined || session.isGone) await open()
    const last = { kind: 'write', number: 1e6, call: new Cancellation(), told: 0 } as const
    expect(session && (await asked(session, last)), label).toBe(1e6)
    const connections = () => members.reduce((sum, { open }) => sum + open, 0)
    for (let tries = 0; connections() > 1 && tries < 100; tries++) await step(500)
    expect(connections(), `${label}: connections`).toBe(1)
    session?.drop()
    expect(memoryInUse() - before, `${label}: bytes that stay`).toBeLessThan(MAX_GROWTH)
    expect(await client.open(6_000, neverCancelled)).toMatchObject({ timeoutMs: 6_000 })
  })
})
