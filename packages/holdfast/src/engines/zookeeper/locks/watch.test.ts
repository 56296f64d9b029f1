/** Events of a real ensemble: none is made up, and what cannot be told is a gap. */
import { startProxy } from 'holdfast-lab/faults'
import { waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { openSession, Rig } from '../../../../test/zookeeper/rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import type { WatchEvent } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import type { ZooKeeperBackend } from './backend.ts'

describe.runIf(wanted('zookeeper'))('a watch', () => {
  let rig: Rig
  let end: Cancellation
  const endings: Promise<void>[] = []
  beforeAll(async () => {
    rig = await Rig.start({ settings: { maxSessionTimeout: '60000' } })
  })
  afterAll(() => rig[Symbol.asyncDispose]())
  afterEach(async () => {
    end.cancel(new Error('the test ends'))
    await Promise.all(endings.splice(0))
    await rig.clear()
    expect(await rig.remains()).toEqual([])
  })

  /** Resolves when it is told of what happens from now on. */
  async function watch(backend: ZooKeeperBackend, cursor?: string) {
    end ??= new Cancellation()
    if (end.cancelled) end = new Cancellation()
    const events: WatchEvent[] = []
    const options = cursor === undefined ? {} : { cursor }
    const read = async () => {
      for await (const event of backend.watch('', options, end)) events.push(event)
    }
    endings.push(read())
    const other = await openSession(await rig.backend())
    let probes = 0
    await waitFor('it watches', async () => {
      const result = await other.tryAcquire(request(`probe ${++probes}`), call())
      if (result.kind === 'granted') await other.release(result.grant, { keepForMs: 0 }, call())
      return events.length > 0 || null
    })
    await other.close(call())
    const story = () =>
      events
        .map((event) => (event.kind === 'gap' ? 'gap' : `${event.kind} ${event.name}`))
        .filter((told) => !told.includes('probe'))
    return { events, story }
  }

  const session = async (ttlMs?: number) => openSession(await rig.backend(), ttlMs)
  const take = async (holder: Awaited<ReturnType<typeof session>>, name = 'x') => {
    const result = await holder.tryAcquire(request(name), call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    return result.grant
  }

  test('a lease that is released just before its session ends was released, and one that was not has expired', async () => {
    const { story } = await watch(await rig.backend())
    const one = await session()
    const held = await take(one)
    await take(one, 'y')
    await one.release(held, { keepForMs: 0 }, call())
    await one.close(call())
    await waitFor('both ends', async () => story().length === 4 || null)
    expect(story().toSorted()).toEqual(['acquired x', 'acquired y', 'expired y', 'released x'])
  })

  test('leases that have ended before their node is read are told all the same', async () => {
    const { story } = await watch(await rig.backend())
    const one = await session()
    const names = Array.from({ length: 40 }, (_, index) => `n${index}`)
    for (const name of names) await one.release(await take(one, name), { keepForMs: 0 }, call())
    await waitFor('all of them', async () => story().length >= 80 || null)
    for (const name of names)
      expect(story().filter((told) => told.endsWith(` ${name}`))).toEqual([
        `acquired ${name}`,
        `released ${name}`,
      ])
    await one.close(call())
  })

  test('a name with data is acquired once by each holder, and its waiters wait once', async () => {
    const { story } = await watch(await rig.backend())
    const [one, other] = [await session(), await session()]
    const held = await take(one)
    await one.setData?.(held, 'left', call())
    const waits = enqueued(other, request('x'), call())
    await waitFor('it waits', async () => story().includes('waiting x') || null)
    await one.release(held, { keepForMs: 0 }, call())
    const result = await waits
    if (result?.kind !== 'granted') throw new Error(result?.kind)
    // The next claim writes over what a release has said of a claim that was not read in time.
    const told = (count: number) => waitFor('it is told', async () => story().length === count || null)
    await told(5)
    await other.release(result.grant, { keepForMs: 0 }, call())
    await told(6)
    const last = await take(one)
    await told(7)
    await one.release(last, { keepForMs: 0 }, call())
    await told(8)
    expect(story()).toEqual([
      ...['acquired x', 'data x', 'waiting x', 'released x', 'acquired x', 'released x'],
      ...['acquired x', 'released x'],
    ])
    await Promise.all([one.close(call()), other.close(call())])
  })

  test('a claim that an operator deletes by hand has ended, and nobody knows why', async () => {
    const { story } = await watch(await rig.backend())
    const one = await session()
    await take(one)
    for (const path of await rig.operator.nodes(`${rig.root}/n/x`)) await rig.operator.delete(path)
    await waitFor('the end', async () => story().length === 2 || null)
    expect(story()).toEqual(['acquired x', 'ended x'])
    await one.close(call())
  })

  describe('what has gone before it could be read is a gap', () => {
    const path = (child: string) => `${rig.root}/n/x/${child}`

    test('a claim', async () => {
      const { story } = await watch(await rig.backend())
      const operator = await rig.operator.session()
      const claim = path('exclusive.1.1.nobody.0000000000')
      await operator.ask({ op: 'create', path: `${rig.root}/n/x`, mode: 'container' }, call())
      const parts = [
        { op: 'create', path: claim, mode: 'ephemeral' },
        { op: 'delete', path: claim },
      ] as const
      expect(await operator.ask({ op: 'multi', parts }, call())).toMatchObject({ ok: true })
      await waitFor('the gap', async () => story().length > 0 || null)
      const one = await session()
      await take(one)
      await waitFor('the next holder', async () => story().length > 1 || null)
      expect(story()).toEqual(['gap', 'acquired x'])
      await one.close(call())
    })

    test('what was written into the claim of a waiter', async () => {
      const { story } = await watch(await rig.backend())
      const [one, other] = [await session(), await session()]
      await take(one)
      const waits = expect(enqueued(other, request('x'), call())).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
      })
      await waitFor('it waits', async () => story().includes('waiting x') || null)
      const operator = await rig.operator.session()
      const claims = await rig.operator.nodes(`${rig.root}/n/x`)
      const claim = claims.toSorted((a, b) => Number(a.slice(-10)) - Number(b.slice(-10))).at(-1) ?? ''
      const read = await operator.ask({ op: 'getData', path: claim }, call())
      const parts = [
        { op: 'setData', path: claim, data: read.ok ? read.data : '' },
        { op: 'delete', path: claim },
      ] as const
      expect(await operator.ask({ op: 'multi', parts }, call())).toMatchObject({ ok: true })
      await waitFor('the gap', async () => story().at(-1) === 'acquired x' || null)
      await waits
      expect(story()).toEqual(['acquired x', 'waiting x', 'gap', 'acquired x'])
      await Promise.all([one.close(call()), other.close(call())])
    })
  })

  test('T33 after a lost connection the watchers are told a gap and the holders, and what comes then', async () => {
    const [member] = rig.cluster.members
    if (member === undefined) throw new Error('no member')
    await using door = await startProxy(member)
    const { story } = await watch(await rig.backend({ hosts: [`${door.host}:${door.port}`] }))
    const one = await session()
    const held = await take(one)
    await waitFor('it is told', async () => story().length === 1 || null)
    door.reset()
    await waitFor('the gap', async () => story().includes('gap') || null)
    await one.release(held, { keepForMs: 0 }, call())
    await waitFor('the end', async () => story().at(-1) === 'released x' || null)
    expect(story()).toEqual(['acquired x', 'gap', 'acquired x', 'released x'])
    await one.close(call())
  })
})
