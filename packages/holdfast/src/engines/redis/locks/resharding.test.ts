/** A Cluster whose slots are moved while their names are in use. */
import assert from 'node:assert/strict'
import { type Cluster, redisCall, type Server, startRedisCluster, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { libraries } from '../../../../test/redis/clients.ts'
import { clusterUrls } from '../../../../test/redis/guard-world.ts'
import { until } from '../../../../test/redis/rig.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import type { Locker } from '../../../base/types.ts'
import { createLocker } from '../../../locker/locker.ts'
import type { Fencing } from '../../../spi.ts'
import { slotOf } from '../client/index.ts'
import { openRedis } from './assemble.ts'

const isNotApplied = (error: unknown) =>
  isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied'

/** A slot that is on its way from one primary to another. */
class MovingSlot {
  readonly #cluster: Cluster
  readonly #slot: number
  readonly #from: Server
  readonly #to: Server
  readonly #key: string

  private constructor(cluster: Cluster, key: string, from: Server, to: Server) {
    this.#cluster = cluster
    this.#slot = slotOf(key)
    this.#key = key
    this.#from = from
    this.#to = to
  }

  /** From now on the primary redirects requests for keys that it does not have to the other one. */
  static async begin(cluster: Cluster, name: string): Promise<MovingSlot> {
    const key = `holdfast:default:{${name}}`
    const slot = slotOf(key)
    const owned = await Promise.all(
      cluster.members.map(async (member) => {
        const nodes = String(await redisCall(member, 'CLUSTER', 'NODES'))
        const [, ranges = ''] = /myself.* connected(.*)/.exec(nodes) ?? []
        return [...ranges.matchAll(/ (\d+)(?:-(\d+))?(?= |$)/g)].some(
          ([, first, last = first]) => Number(first) <= slot && slot <= Number(last),
        )
      }),
    )
    const from = cluster.members[owned.indexOf(true)]
    const to = cluster.members[owned.indexOf(false)]
    assert(from !== undefined && to !== undefined)
    const moving = new MovingSlot(cluster, key, from, to)
    await redisCall(to, 'CLUSTER', 'SETSLOT', slot, 'IMPORTING', await idOf(from))
    await redisCall(from, 'CLUSTER', 'SETSLOT', slot, 'MIGRATING', await idOf(to))
    return moving
  }

  /** Those of its keys that end so. */
  async move(...suffixes: readonly string[]): Promise<void> {
    for (const suffix of suffixes)
      await redisCall(this.#from, 'MIGRATE', this.#to.host, this.#to.port, this.#key + suffix, 0, 5_000)
  }

  /** Everything else, and the slot. */
  async finish(): Promise<void> {
    const left = (await redisCall(this.#from, 'CLUSTER', 'GETKEYSINSLOT', this.#slot, 100)) as string[]
    for (const key of left)
      await redisCall(this.#from, 'MIGRATE', this.#to.host, this.#to.port, key, 0, 5_000)
    const id = await idOf(this.#to)
    const others = this.#cluster.members.filter((member) => member !== this.#to)
    for (const member of [this.#to, ...others])
      await redisCall(member, 'CLUSTER', 'SETSLOT', this.#slot, 'NODE', id)
  }
}

async function idOf(server: Server): Promise<string> {
  return String(await redisCall(server, 'CLUSTER', 'MYID'))
}

describe.runIf(wanted('redis'))('redis: a slot that is moved', () => {
  let cluster: Cluster
  const closing: (() => unknown)[] = []
  beforeAll(async () => {
    cluster = await startRedisCluster()
  })
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close()
  })
  afterAll(() => cluster?.stop())

  async function open(
    library = libraries[0],
    { fencing, ttlMs = 20_000 }: { fencing?: 'clock-backed'; ttlMs?: number } = {},
  ): Promise<Locker<Fencing>> {
    assert(library !== undefined)
    const { client, close } = await library.openCluster(clusterUrls(cluster))
    const backend = openRedis({ client, ...(fencing && { fencing, issuer: 'cluster' }) })
    const locker = createLocker(backend, { ttlMs }) as Locker<Fencing>
    closing.push(close, () => locker.close({ graceMs: 0 }))
    return locker
  }

  for (const library of libraries) {
    test(`T90 an exclusive lease is renewed and released while its slot is moved, on both sides (${library.name})`, async () => {
      const locker = await open(library)
      for (const isMoved of [false, true]) {
        const name = `${library.name} exclusive ${isMoved}`
        const lease = await locker.acquire(name)
        const moving = await MovingSlot.begin(cluster, name)
        await lease.renew()
        if (isMoved) await moving.move('')
        await lease.renew()
        assert.equal(await lease.release(), 'released')
        await moving.finish()
        const next = await locker.acquire(name)
        assert.equal(await next.release(), 'released')
      }
    })

    test(`T90 a free name in a slot that is moved is refused as not applied, and had afterwards (${library.name})`, async () => {
      const name = `${library.name} free`
      const locker = await open(library)
      const moving = await MovingSlot.begin(cluster, name)
      await assert.rejects(locker.tryAcquire(name), isNotApplied)
      await assert.rejects(locker.tryAcquire(name, { mode: 'shared' }), isNotApplied)
      const waiting = locker.acquire(name, { waitMs: 30_000 })
      await moving.finish()
      const lease = await waiting
      assert.equal(await lease.release(), 'released')
      assert.equal(await locker.inspect(name), null, 'nothing is left')
    })
  }

  // Whatever has been moved before: the lock key, the state, and the set of the holders.
  const parts: readonly (readonly string[])[] = [
    [],
    [''],
    [':s'],
    [':h'],
    ['', ':s'],
    ['', ':h'],
    [':s', ':h'],
    ['', ':s', ':h'],
  ]
  test.each(parts.map((moved) => ({ moved })))(
    'T90 shared leases are never told that they were deleted while their keys are on two sides: moved $moved',
    async ({ moved }) => {
      const name = `shared ${moved.join('')}`
      const locker = await open()
      const leases = [
        await locker.acquire(name, { mode: 'shared' }),
        await locker.acquire(name, { mode: 'shared' }),
      ]
      const moving = await MovingSlot.begin(cluster, name)
      await moving.move(...moved)
      for (const lease of leases)
        await lease
          .renew()
          .catch((error: unknown) => assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'), String(error)))
      assert.deepEqual(
        leases.map(({ state }) => state !== 'lost'),
        [true, true],
      )
      await assert.rejects(locker.tryAcquire(name), isNotApplied)
      await moving.finish()
      for (const lease of leases) {
        await lease.renew()
        assert.equal(lease.state, 'held')
        assert.equal(await lease.release(), 'released')
      }
      assert.equal(await locker.inspect(name), null)
    },
  )

  const ofQueue = [[], [''], [':s'], [':q'], ['', ':s'], ['', ':q'], [':s', ':q']]
  test.each(ofQueue.map((moved) => ({ moved })))(
    'T90 waiters get the name when the slot has been moved, released before or after: moved $moved',
    async ({ moved }) => {
      // A release meanwhile is handed over at the waiter's next heartbeat.
      const locker = await open(undefined, { fencing: 'clock-backed', ttlMs: 4_000 })
      for (const isReleasedBefore of [true, false]) {
        const name = `queue ${moved.join('')} ${isReleasedBefore}`
        const holder = await locker.acquire(name)
        const first = locker.acquire(name, { waitMs: 60_000 })
        await until('it waits', async () => (await locker.inspect(name))?.waiters.length === 1)
        const moving = await MovingSlot.begin(cluster, name)
        await moving.move(...moved)
        if (isReleasedBefore) await holder.release()
        await moving.finish()
        if (!isReleasedBefore) await holder.release()
        const next = await first
        assert((next.fence?.token ?? 0n) > (holder.fence?.token ?? 0n))
        assert.equal(await next.release(), 'released')
      }
    },
  )

  test('T90 an operator is told to try again, and data is not overlooked', async () => {
    const name = 'data'
    const locker = await open()
    const lease = await locker.acquire(name)
    await lease.setData('kept')
    const moving = await MovingSlot.begin(cluster, name)
    await moving.move('')
    const isRefused = (error: unknown) => isHoldfastError(error, 'BACKEND_UNAVAILABLE')
    await assert.rejects(locker.inspect(name), isRefused)
    await assert.rejects(locker.forceRelease(name, { all: true, reason: 'test' }), isRefused)
    await assert.rejects(lease.setData('lost'), isRefused)
    await lease.release()
    await moving.finish()
    const next = await locker.acquire(name)
    assert.equal(next.previousData, 'kept')
    await next.release()
    assert.equal(await locker.forget(name), 'forgotten')
  })
})
