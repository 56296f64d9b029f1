import { describe, expect, test } from 'vitest'
import { Random } from '../testing/random.ts'
import { type Simulation, simulate } from '../testing/simulate.ts'
import { withoutEngine } from '../testing/views.ts'
import { checkLinearizable, type Linearizability } from './check.ts'
import { lockActs } from './from-history.ts'
import type { Act, Model } from './model.ts'
import type { LockCall } from './models/call.ts'
import { fencedMutex } from './models/fenced-mutex.ts'
import { mutex } from './models/mutex.ts'
import { reentrantFencedMutex } from './models/reentrant-fenced-mutex.ts'
import { semaphore } from './models/semaphore.ts'

/** The promise for an idle machine. The cores may be shared, so the test allows ten times as much. */
const promisedSeconds = 2
function actsOf(simulation: Simulation): Act<LockCall>[] {
  return lockActs(withoutEngine(simulate({ everything: false, ...simulation })))
}

function timed<State>(
  what: string,
  model: Model<State, LockCall>,
  acts: readonly Act<LockCall>[],
): Linearizability<LockCall> {
  const before = process.cpuUsage()
  const start = performance.now()
  const result = checkLinearizable(model, acts)
  const { user, system } = process.cpuUsage(before)
  const cpuSeconds = (user + system) / 1e6
  const uncertain = acts.filter(({ certain }) => !certain).length
  const configurations = [...result.names.values()].reduce((sum, each) => sum + each.configurations, 0)
  console.log(
    `${what}: ${acts.length} operations (${uncertain} uncertain), ${model.title}: ${result.result}, ` +
      `${((performance.now() - start) / 1e3).toFixed(2)} s (${cpuSeconds.toFixed(2)} s of processor time), ` +
      `${configurations} configurations`,
  )
  expect(cpuSeconds).toBeLessThan(10 * promisedSeconds)
  return result
}

describe('100,000 operations of 5 clients', () => {
  const plain = actsOf({ seed: 21, clients: 5, operations: 100_000 })
  const faulty = actsOf({ seed: 22, clients: 5, operations: 100_000, faults: 0.03 })
  const permits = actsOf({ seed: 23, clients: 5, operations: 100_000, capacity: 3 })

  test('are found to be linearizable', () => {
    expect(plain.length).toBeGreaterThanOrEqual(100_000)
    expect(timed('turns', mutex(), plain).result).toBe('linearizable')
    expect(timed('turns', fencedMutex(), plain).result).toBe('linearizable')
    expect(timed('turns', reentrantFencedMutex(), plain).result).toBe('linearizable')
    expect(timed('permits', semaphore(3), permits).result).toBe('linearizable')
  })

  test('also if thousands of leases end in ways that nobody saw', () => {
    expect(timed('faults', fencedMutex(), faulty).result).toBe('linearizable')
  })

  test('a single fault near the end is found, and everything before it can be put in order', () => {
    const last = plain.findLastIndex(({ call }) => call.kind === 'acquire')
    const damaged = plain.map((act, index) =>
      index === last
        ? { ...act, call: { ...act.call, token: 17n }, label: () => 'the one with token 17' }
        : act,
    )
    const result = timed('one token is wrong', fencedMutex(), damaged)
    const [found] = result.names.values()
    if (found?.result !== 'not-linearizable') throw new Error('it is not')
    expect(found.prefix.length).toBeGreaterThan(99_900)
    expect(found.explanation).toContain('the one with token 17: cannot take effect then')
  })

  test('one permit too many, among thousands of uncertain ends, is found', () => {
    const acts = actsOf({ seed: 24, clients: 5, operations: 20_000, capacity: 3, faults: 0.03 })
    const place = acts.findLast(({ call, certain }) => call.kind === 'acquire' && certain)?.returned ?? 0
    const thieves = ['x', 'y', 'z', 'zz'].map((owner, index): Act<LockCall> => {
      const returned = place + (index + 1) / 10
      const call = { kind: 'acquire', owner, weight: 1 } as const
      return { name: 'name 0', call, invoked: returned, returned, certain: true, label: () => owner }
    })
    expect(timed('too many permits', semaphore(3), [...acts, ...thieves]).result).toBe('not-linearizable')
  })

  test('a client that waits while the others do 20,000 operations does not slow the search down', () => {
    const acts = plain.slice(0, 20_000)
    const last = acts.reduce((most, { returned }) => Math.max(most, returned), 0)
    const waiting = { kind: 'acquire', owner: 'patient' } as const
    const patient = {
      name: 'name 0',
      call: waiting,
      invoked: 0,
      returned: last + 2,
      certain: true,
      label: () => 'patient',
    }
    expect(timed('a long wait', mutex(), [...acts, patient]).result).toBe('linearizable')
  })
})

describe('a long history with one operation damaged is not linearizable', () => {
  const random = new Random(5)
  const good = actsOf({ seed: 25, clients: 5, operations: 3_000 })
  const acquires = good.flatMap(({ call }, index) => (call.kind === 'acquire' ? [index] : []))
  const releases = good.flatMap(({ call }, index) => (call.kind === 'release' ? [index] : []))
  const inTheMiddle = (indexes: readonly number[]) => indexes[100 + random.below(indexes.length - 200)] ?? 0

  test.each([
    {
      what: 'a token that was used before',
      damage: (acts: Act<LockCall>[]) => {
        const index = inTheMiddle(acquires)
        const earlier = acts[acquires[acquires.indexOf(index) - 20] ?? 0]
        replace(acts, index, (act) => ({ ...act, call: { ...act.call, ...tokenOf(earlier) } }))
      },
    },
    {
      what: 'a release that somebody else made',
      damage: (acts: Act<LockCall>[]) =>
        replace(acts, inTheMiddle(releases), (act) => ({
          ...act,
          call: { ...act.call, owner: 'somebody else' },
        })),
    },
    {
      what: 'a release that is missing',
      damage: (acts: Act<LockCall>[]) => void acts.splice(inTheMiddle(releases), 1),
    },
    {
      what: 'an acquire that is there twice',
      damage: (acts: Act<LockCall>[]) => void acts.push(acts[inTheMiddle(acquires)] as Act<LockCall>),
    },
    {
      what: 'an acquire that was answered long before its turn',
      damage: (acts: Act<LockCall>[]) =>
        replace(acts, inTheMiddle(acquires), (act) => ({
          ...act,
          invoked: act.invoked - 500,
          returned: act.returned - 500,
        })),
    },
    {
      what: 'a release that was sent long after the next had it',
      damage: (acts: Act<LockCall>[]) =>
        replace(acts, inTheMiddle(releases), (act) => ({
          ...act,
          invoked: act.invoked + 500,
          returned: act.returned + 500,
        })),
    },
  ])('$what', ({ damage }) => {
    expect(checkLinearizable(fencedMutex(), good).result).toBe('linearizable')
    for (let round = 0; round < 10; round++) {
      const acts = [...good]
      damage(acts)
      expect(checkLinearizable(fencedMutex(), acts).result).toBe('not-linearizable')
    }
  })
})

function replace(acts: Act<LockCall>[], index: number, change: (act: Act<LockCall>) => Act<LockCall>): void {
  acts[index] = change(acts[index] as Act<LockCall>)
}

function tokenOf(act: Act<LockCall> | undefined): { readonly token?: bigint } {
  return act?.call.token === undefined ? {} : { token: act.call.token }
}
