/**
 * The engines that the suite of a recipe runs on. `describeRecipe` runs it once for each of them, with lockers as if in
 * several processes.
 *
 * ```ts
 * describeRecipe('election', (stage) => {
 *   stage.test('one leader at a time', async ({ locker, passTime }) => { … })
 * })
 * ```
 */
import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import type { Locker } from '../../src/base/types.ts'
import { createLocker, type LockerOptions } from '../../src/locker/locker.ts'
import type { Backend } from '../../src/spi.ts'
import { atOnce } from '../../src/testing/conformance/at-once.ts'
import type { World } from '../../src/testing/describe-backend.ts'
import { type FaultyBackend, faultyBackend } from '../../src/testing/faulty-backend.ts'
import { ConsulStage } from '../conformance/consul-world.ts'
import { EtcdStage } from '../conformance/etcd-world.ts'
import { memoryWorld } from '../conformance/memory-world.ts'
import { PostgresStage } from '../conformance/postgres-world.ts'
import { RedisStage } from '../conformance/redis-world.ts'
import { sqliteWorldOnFakeClock } from '../conformance/sqlite-world.ts'
import { ZooKeeperStage } from '../conformance/zookeeper-world.ts'
import { withPg } from '../postgres/clients.ts'
import { libraryNamed } from '../redis/clients.ts'

interface Engine {
  readonly name: string
  readonly start?: () => Promise<void>
  readonly stop?: () => Promise<void>
  readonly world: () => Promise<World>
  /** Time is real there, and cases run side by side. */
  readonly isRealTime?: boolean
}

const CASES_AT_ONCE = 16
/** For starting an engine, and for a case in real time. */
const LIMIT_MS = 120_000

function engines(): readonly Engine[] {
  const redis = new RedisStage({
    library: libraryNamed('ioredis 6'),
    backend: { fencing: 'clock-backed' },
  })
  let postgres: PostgresStage
  const [etcd, zookeeper, consul] = [new EtcdStage(), new ZooKeeperStage(), new ConsulStage()]
  return [
    { name: 'memory', world: () => memoryWorld() },
    { name: 'sqlite', world: () => sqliteWorldOnFakeClock() },
    { name: 'redis', start: () => redis.start(), stop: () => redis.stop(), world: () => redis.world() },
    {
      name: 'postgres',
      async start() {
        postgres = await PostgresStage.start({ library: withPg, through: 'directly', time: 'shared' })
      },
      stop: () => postgres.stop(),
      world: () => postgres.world(),
    },
    { name: 'etcd', stop: () => etcd.stop(), world: () => etcd.world(), isRealTime: true },
    { name: 'zookeeper', stop: () => zookeeper.stop(), world: () => zookeeper.world(), isRealTime: true },
    { name: 'consul', stop: () => consul.stop(), world: () => consul.world(), isRealTime: true },
  ]
}

/** One case on one engine. */
export interface RecipeWorld {
  readonly engine: string
  readonly isRealTime: boolean
  /** A TTL that suits the engine. */
  readonly ttlMs: number
  /** A locker of its own session and connection, as in another process. They are closed at the end of the case. */
  locker(options?: LockerOptions): Promise<Locker<'fenced'>>
  /** Lets time pass for engine and lockers, and what becomes due happen. */
  passTime(ms: number): Promise<void>
  /** Lets time pass until `isSo`, in steps of a tenth of the TTL; fails after `withinTtls` of them. */
  until(what: string, isSo: () => boolean | Promise<boolean>, withinTtls?: number): Promise<void>
  /** From now on nothing arrives from this locker, and nothing reaches it: as if its process had been killed. */
  kill(locker: Locker<'fenced'>): void
  /** The wire of a locker, to lose or delay single messages on it. */
  wireOf(locker: Locker<'fenced'>): FaultyBackend<'fenced'>
}

export interface RecipeStage {
  test(name: string, body: (world: RecipeWorld) => Promise<void>): void
}

/** `only`: where three kinds of engines are enough (in this process, a file, a server), for the time that `npm test` takes. */
export function describeRecipe(
  recipe: string,
  body: (stage: RecipeStage) => void,
  only?: readonly string[],
): void {
  for (const engine of engines().filter(({ name }) => only?.includes(name) ?? true)) {
    describe.runIf(wanted(engine.name))(`${recipe} on ${engine.name}`, () => {
      if (engine.start) beforeAll(engine.start, LIMIT_MS)
      if (engine.stop) afterAll(engine.stop, LIMIT_MS)
      const run = engine.isRealTime
        ? atOnce((name, body) => test(name, { timeout: LIMIT_MS }, body), CASES_AT_ONCE)
        : test
      body({ test: (name, play) => run(name, () => playOn(engine, play)) })
    })
  }
}

async function playOn(engine: Engine, play: (world: RecipeWorld) => Promise<void>): Promise<void> {
  const world = await engine.world()
  const wires = new Map<Locker<'fenced'>, FaultyBackend<'fenced'>>()
  const { passTime, ttlMs } = world
  const wireOf = (locker: Locker<'fenced'>) => {
    const wire = wires.get(locker)
    if (wire === undefined) throw new Error('not a locker of this world')
    return wire
  }
  try {
    await play({
      engine: engine.name,
      isRealTime: engine.isRealTime ?? false,
      ttlMs,
      async locker(options = {}) {
        const wire = faultyBackend((await world.client()) as Backend<'fenced'>)
        const locker = createLocker(wire, { ttlMs, ...options })
        wires.set(locker, wire)
        return locker
      },
      passTime: (ms) => passTime(ms),
      async until(what, isSo, withinTtls = 10) {
        for (let steps = 0; !(await isSo()); steps++) {
          if (steps >= withinTtls * 10) throw new Error(`${what}: not so after ${withinTtls} TTLs`)
          await passTime(ttlMs / 10)
        }
      },
      kill: (locker) => wireOf(locker).freeze(),
      wireOf,
    })
  } finally {
    // A killed one never hears that it was closed.
    const living = [...wires].filter(([, wire]) => !wire.isFrozen)
    await Promise.all(living.map(([locker]) => locker.close({ graceMs: 0 })))
    await world.close()
  }
}
