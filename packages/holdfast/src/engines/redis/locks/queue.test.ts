/** The line on Redis: what a release costs, what the dead cost, and what a lost push costs. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { kill, startProxy } from 'holdfast-lab/faults'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { pause, Rig, until } from '../../../../test/redis/rig.ts'
import { startProgram } from '../../../../test/start-program.ts'
import { callWith } from '../../../base/aborting.ts'
import { systemRandom } from '../../../base/ids.ts'
import { LOCK_CAPACITY } from '../../../spi.ts'
import { enqueued } from '../../../testing/enqueued.ts'

const call = () => callWith()

function request(name: string) {
  const attempt = `${systemRandom.id()}.${systemRandom.id()}`
  const exclusive = { mode: 'exclusive', weight: LOCK_CAPACITY, capacity: LOCK_CAPACITY } as const
  return { name, attempt, lockDelayMs: 0, ...exclusive }
}

async function commandsOf(server: Server): Promise<Record<string, number>> {
  const report = String(await redisCall(server, 'INFO', 'commandstats'))
  const all = [...report.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)]
  return Object.fromEntries(
    all.filter(([, name]) => name !== 'info').map(([, name, calls]) => [name, Number(calls)]),
  )
}

describe.runIf(wanted('redis'))('the line on redis', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())

  test('G9 T28 a release costs the same commands with 1,000 waiting as with 10, and wakes one', async () => {
    await using rig = new Rig()
    const costWith = async (waiting: number) => {
      const backend = await rig.backend(server.url)
      const session = await backend
        .openSession({ id: systemRandom.id(), ttlMs: 60_000, holder: 'h' }, call())
        .then(namingGrants)
      const name = systemRandom.id()
      const first = request(name)
      assert.equal((await session.tryAcquire(first, call())).kind, 'granted')
      let queued = 0
      let woken = 0
      const turns = Array.from({ length: waiting }, async () => {
        const result = await enqueued(session, request(name), callWith(undefined, { queued: () => queued++ }))
        if (result?.kind === 'granted') woken++
      })
      for (const turn of turns) turn.catch(() => {})
      await until('all wait', () => queued === waiting)
      const before = await commandsOf(server)
      await session.release(first, { keepForMs: 0 }, call())
      await until('one is woken', () => woken > 0)
      await pause(50)
      const after = await commandsOf(server)
      assert.equal(woken, 1)
      return Object.fromEntries(
        Object.entries(after).map(([name, calls]) => [name, calls - (before[name] ?? 0)]),
      )
    }
    await costWith(10)
    const few = await costWith(10)
    assert.deepEqual(await costWith(1_000), few)
    assert.equal(few.evalsha, 1)
    assert.equal(few.publish, 1)
  })

  test('G10 T20 a waiter that dies while it is granted the lock delays the others by at most the TTL', async () => {
    await using rig = new Rig()
    const ttlMs = 2_000
    const locker = await rig.locker(server.url, { locker: { ttlMs } })
    const lease = await locker.acquire('x')
    const program = join(import.meta.dirname, '../../../../test/redis/waiter.ts')
    const dying = startProgram(program, server.url, 'x', ttlMs)
    await until(
      'the other process waits',
      async () => ((await locker.inspect('x'))?.waiters.length ?? 0) === 1,
    )
    const next = locker.acquire('x', { waitMs: 60_000 })
    await until('we wait behind it', async () => ((await locker.inspect('x'))?.waiters.length ?? 0) === 2)
    await kill(dying.process)
    const story: string[] = []
    const told = (async () => {
      for await (const event of locker.watch('x')) {
        story.push(event.kind)
        if (event.kind === 'acquired' && event.holder !== 'dying') return
      }
    })()
    await lease.release()
    const [heir] = (await locker.inspect('x'))?.holders ?? []
    assert.equal(heir?.holder, 'dying', 'the dead one has been handed the lock')
    assert((heir.expiresInMs ?? Infinity) <= ttlMs, 'for one TTL')
    const survivor = await next
    await told
    // Once, so it cost one TTL and not several.
    assert.deepEqual(
      story.filter((kind) => kind === 'expired'),
      ['expired'],
    )
    assert.equal(survivor.state, 'held')
    await survivor.release()
  })

  test('T19 pushes that were missed while the subscription was lost are made up for', async () => {
    await using proxy = await startProxy(server)
    await using rig = new Rig()
    // TTLs so long that neither a keep-alive nor a look at the holder's end could bring the grant within this test.
    const patient = { locker: { ttlMs: 600_000 } }
    const holder = await rig.locker(server.url, patient)
    const lease = await holder.acquire('missed')
    const waiter = await rig.locker(`redis://${proxy.host}:${proxy.port}`, patient)
    const waiting = waiter.acquire('missed', { waitMs: 60_000 })
    await until('it waits', async () => ((await holder.inspect('missed'))?.waiters.length ?? 0) === 1)
    proxy.refuse()
    proxy.reset()
    await lease.release()
    await until('it has been handed over', async () => {
      const [found] = (await holder.inspect('missed'))?.holders ?? []
      return found !== undefined && found.id !== lease.id
    })
    proxy.heal()
    const handed = await waiting
    assert.equal(handed.state, 'held')
    await handed.release()
  })

  test('G10 a waiter that becomes the first behind a short-lived holder learns when to look', async () => {
    await using rig = new Rig()
    const [patient, hasty] = [
      await rig.locker(server.url, { locker: { ttlMs: 600_000 } }),
      await rig.backend(server.url),
    ]
    const first = await patient.acquire('hint')
    const session = await hasty
      .openSession({ id: systemRandom.id(), ttlMs: 3_000, holder: 'hasty' }, call())
      .then(namingGrants)
    const handed = enqueued(session, request('hint'), call())
    await until(
      'the hasty one waits',
      async () => ((await patient.inspect('hint'))?.waiters.length ?? 0) === 1,
    )
    const second = patient.acquire('hint', { waitMs: 60_000 })
    await until('both wait', async () => ((await patient.inspect('hint'))?.waiters.length ?? 0) === 2)
    await first.release()
    // It holds, and never renews: its three seconds end long before the heartbeat of the waiter behind it.
    assert.equal((await handed)?.kind, 'granted')
    const lease = await second
    assert.equal(lease.state, 'held')
    await lease.release()
  })

  test('a namespace with a bar in it hands over like any other', async () => {
    await using rig = new Rig()
    const [one, other] = [
      await rig.locker(server.url, { backend: { namespace: 'a|b' }, locker: { ttlMs: 600_000 } }),
      await rig.locker(server.url, { backend: { namespace: 'a|b' }, locker: { ttlMs: 600_000 } }),
    ]
    const lease = await one.acquire('x')
    const next = other.acquire('x', { waitMs: 20_000 })
    await until('it waits', async () => ((await one.inspect('x'))?.waiters.length ?? 0) === 1)
    await lease.release()
    const handed = await next
    assert.equal(handed.state, 'held')
    await handed.release()
  })

  test('a keep-alive says nothing of a position that is only just being asked for', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await backend
      .openSession({ id: systemRandom.id(), ttlMs: 60_000, holder: 'h' }, call())
      .then(namingGrants)
    const asked = request('just asked')
    const granted = enqueued(session, asked, call())
    // It leaves before the request does: nothing is queued yet.
    const kept = await session.keepAlive({ held: [], waiting: [asked] }, call())
    assert(kept.kind === 'alive')
    assert.deepEqual([kept.lost, kept.unlisted], [[], []])
    assert.equal((await granted)?.kind, 'granted')
  })

  test('a locker that is not closed does not keep the process alive, once its client is closed', async () => {
    const program = join(import.meta.dirname, '../../../../test/redis/forgotten.ts')
    const { code, lines, errors } = await startProgram(program, server.url).ended
    assert.deepEqual({ code, lines, errors }, { code: 0, lines: ['done'], errors: '' })
  })

  test('a name that many have waited for leaves nothing behind', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    let inside = 0
    await Promise.all(
      Array.from({ length: 200 }, () =>
        locker.withLease('busy', async () => {
          assert.equal(++inside, 1, 'G1')
          await Promise.resolve()
          inside--
        }),
      ),
    )
    await locker.close()
    const left = (await redisCall(server, 'KEYS', 'holdfast:default:{busy}*')) as string[]
    assert.deepEqual(left, [])
  })
})
