/**
 * Loads that can grow, and the calls that are measured meanwhile. A crowd makes the load; the measured calls come from another locker on
 * the same engine. A new measure is one more entry in a list below.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Lease, Locker } from 'holdfast'
import { Queue } from './queue.ts'

export interface Scene {
  readonly crowd: Locker
  readonly probe: Locker
}

/** Costs the time of a call, and the servers' CPU time for it. */
export interface CallMeasure {
  readonly name: string
  /** Its answer is as large as the load, so its cost grows in any case. */
  readonly hasGrowingAnswer?: boolean
  /** Only the first call shows it. */
  readonly isOnce?: boolean
  call(): Promise<unknown>
}

/** Costs the CPU time of client and servers per second while it goes on. */
export interface RestMeasure {
  readonly name: string
  readonly hasGrowingAnswer?: boolean
  begin(): Promise<() => Promise<unknown>>
}

export type Measure = CallMeasure | RestMeasure

export interface Growing {
  /** Brings the load to this size; sizes come in ascending order. */
  growTo(size: number): Promise<void>
  readonly measures: readonly Measure[]
}

export interface Load {
  readonly name: string
  /** A load that costs more for each has smaller sizes. */
  readonly divisor?: number
  start(scene: Scene): Promise<Growing>
}

export const loads: readonly Load[] = [
  { name: 'names in use', start: startNames },
  { name: 'leases held by the caller', start: startOwnLeases },
  { name: 'leases held on one name', start: startLeases },
  { name: 'waiters for one name', start: startWaiters },
  { name: 'waiters that gave up', start: startGaveUp },
  { name: 'earlier leases of one name', start: startEarlier },
  { name: 'watchers', divisor: 100, start: startWatchers },
]

const atRest: RestMeasure = { name: 'at rest', begin: async () => async () => {} }

async function startNames({ crowd, probe }: Scene): Promise<Growing> {
  const nameOf = (index: number) => `names/${String(index).padStart(8, '0')}`
  let held = 0
  return {
    async growTo(size) {
      await inBatches(size - held, () => crowd.acquire(nameOf(held++), { ttlMs: longTtlMs(crowd) }))
    },
    measures: [
      pair(probe),
      { name: 'inspect', call: () => probe.inspect(nameOf(0)) },
      { name: 'list, one matches', call: () => probe.list(nameOf(0)) },
      { name: 'list, all match', hasGrowingAnswer: true, call: () => probe.list() },
      atRest,
      { name: 'watch, one matches', begin: () => watching(probe, nameOf(0)) },
      { name: 'watch, all match', hasGrowingAnswer: true, begin: () => watching(probe) },
    ],
  }
}

async function startOwnLeases({ crowd, probe }: Scene): Promise<Growing> {
  let held = 0
  const taken = Array.from({ length: 100 }, (_, index) => `taken/${index}`)
  await Promise.all(taken.map((name) => crowd.acquire(name, { ttlMs: longTtlMs(crowd) })))
  return {
    async growTo(size) {
      await inBatches(size - held, () => probe.acquire(`own/${held++}`, { ttlMs: longTtlMs(probe) }))
    },
    measures: [pair(probe), timedOut(probe, taken), atRest],
  }
}

async function startLeases({ crowd, probe }: Scene): Promise<Growing> {
  const name = 'shared'
  let held = 0
  return {
    async growTo(size) {
      const ttlMs = longTtlMs(crowd)
      await inBatches(size - held, () => crowd.acquire(name, { mode: 'shared', ttlMs }))
      held = size
    },
    measures: [
      pair(probe),
      {
        name: 'acquire and release one more',
        call: async () => (await probe.acquire(name, { mode: 'shared' })).release(),
      },
      refused(probe, name),
      { name: 'inspect', hasGrowingAnswer: true, call: () => probe.inspect(name) },
      atRest,
    ],
  }
}

async function startWaiters({ crowd, probe }: Scene): Promise<Growing> {
  const queue = await Queue.start(crowd, 'queue')
  return {
    growTo: (size) => queue.waitUntil(size),
    measures: [
      pair(probe),
      refused(probe, queue.name),
      { name: 'inspect', hasGrowingAnswer: true, call: () => probe.inspect(queue.name) },
      { name: 'hand-over', call: () => queue.handOver() },
      atRest,
    ],
  }
}

async function startGaveUp({ crowd, probe }: Scene): Promise<Growing> {
  const queue = await Queue.start(crowd, 'queue')
  return {
    async growTo(size) {
      // One that goes on waiting in front of those: what is behind it is not removed with it.
      await queue.waitUntil(1)
      await queue.giveUp(size)
    },
    measures: [
      pair(probe),
      refused(probe, queue.name),
      { name: 'inspect', call: () => probe.inspect(queue.name) },
      { name: 'first hand-over', isOnce: true, call: () => queue.handOver() },
      atRest,
    ],
  }
}

/** Engines that keep what was deleted until they are compacted may get slower with it. */
async function startEarlier({ crowd, probe }: Scene): Promise<Growing> {
  const name = 'again'
  let had = 0
  return {
    async growTo(size) {
      for (; had < size; had++) await (await crowd.acquire(name)).release()
    },
    measures: [
      { name: 'acquire and release it', call: async () => (await probe.acquire(name)).release() },
      { name: 'inspect', call: () => probe.inspect(name) },
    ],
  }
}

async function startWatchers({ crowd, probe }: Scene): Promise<Growing> {
  let watchers = 0
  await crowd.acquire('watched', { ttlMs: longTtlMs(crowd) })
  return {
    async growTo(size) {
      await inBatches(size - watchers, () => watching(crowd))
      watchers = size
    },
    measures: [pair(probe), atRest],
  }
}

function pair(probe: Locker): CallMeasure {
  return { name: 'acquire and release', call: async () => (await probe.acquire('free')).release() }
}

function refused(probe: Locker, name: string): CallMeasure {
  return {
    name: 'tryAcquire, refused',
    async call() {
      const lease: Lease | null = await probe.tryAcquire(name)
      if (lease !== null) throw new Error(`${name} was to be held, and is free`)
    },
  }
}

/** Many at once share the wait, so the rest of their cost shows. */
function timedOut(probe: Locker, names: readonly string[]): CallMeasure {
  return {
    name: `${names.length} acquires that time out`,
    async call() {
      const outcomes = await Promise.allSettled(names.map((name) => probe.acquire(name, { waitMs: 50 })))
      if (outcomes.some(({ status }) => status === 'fulfilled'))
        throw new Error('a name was to be held, and is free')
    },
  }
}

/** An engine that pushes has nothing to tell at first. */
const firstEventMs = 500

/** Resolves when it is settled, with a function that ends it. */
async function watching(locker: Locker, prefix?: string): Promise<() => Promise<unknown>> {
  const controller = new AbortController()
  const first = Promise.withResolvers<void>()
  const ended = (async () => {
    for await (const _ of locker.watch(prefix, { signal: controller.signal })) first.resolve()
  })().catch(first.reject)
  await Promise.race([first.promise, sleep(firstEventMs)])
  return () => {
    controller.abort()
    return ended
  }
}

/** So long that nothing is renewed while it is measured. */
function longTtlMs({ info }: Locker): number {
  return Math.min(info.ttlMs.max, 600_000)
}

async function inBatches(count: number, action: () => Promise<unknown>): Promise<void> {
  for (let left = count; left > 0; left -= 256) {
    await Promise.all(Array.from({ length: Math.min(left, 256) }, action))
    await sleep(0)
  }
}
