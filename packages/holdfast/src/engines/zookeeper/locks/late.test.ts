/** Requests whose answers are lost, and requests that arrive late: what they leave behind at ZooKeeper. */
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { limitedCall, openSession, Rig } from '../../../../test/zookeeper/rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { systemRandom } from '../../../base/ids.ts'
import type { BackendSession } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'

const unknown = { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' }
const nothing = { held: [], waiting: [] }

describe.runIf(wanted('zookeeper'))('late requests', () => {
  let rig: Rig
  let doors: FaultyProxy[]
  beforeAll(async () => {
    rig = await Rig.start({ members: 3, settings: { maxSessionTimeout: '60000' } })
  })
  afterAll(() => rig[Symbol.asyncDispose]())
  beforeEach(async () => {
    doors = await Promise.all(rig.cluster.members.map((member) => startProxy(member)))
  })
  afterEach(async () => {
    await rig.clear()
    expect(await rig.remains()).toEqual([])
    await Promise.all(doors.map((door) => door.close()))
  })

  /** It begins at the first door, and knows only so many. */
  const openThrough = async (count = 1) => {
    const hosts = doors.slice(0, count).map(({ host, port }) => `${host}:${port}`)
    const backend = await rig.backend({ hosts, random: { ...systemRandom, fraction: () => 0 } })
    return openSession(backend)
  }
  const door = (index = 0) => doors[index] as FaultyProxy
  const claims = async () => (await rig.remains()).filter((path) => /\/n\//.test(path))
  const attempts = async () => (await rig.remains()).filter((path) => /\/a\//.test(path))

  /** Asked again until the connection that the fault has spoilt is left. */
  const answered = <T>(ask: () => Promise<T>) =>
    waitFor('an answer', () =>
      ask().then(
        (answer) => ({ answer }),
        () => null,
      ),
    ).then(({ answer }) => answer)

  /** A join that is given up when `arrived` says so. */
  const lose = async (
    session: BackendSession<'fenced'>,
    asked = request('x'),
    arrived = async () => true,
  ) => {
    const given = new Cancellation()
    const lost = expect(session.tryAcquire(asked, given)).rejects.toMatchObject(unknown)
    await waitFor('the join to be where it stays', async () => (await arrived()) || null)
    given.cancel(new Error('given up'))
    await lost
    return asked
  }

  test('T10 a create whose reply is lost leaves no ghost: the name is free when the attempt was abandoned', async () => {
    const session = await openThrough()
    const other = await openSession(await rig.backend())
    door().drop('down')
    const asked = await lose(session, request('x'), async () => (await claims()).length === 1)
    // The ghost is there, and in the way of everybody.
    expect((await other.tryAcquire(request('x'), call())).kind).toBe('busy')
    door().heal()
    await answered(() => session.abandon(asked, call()))
    expect((await other.tryAcquire(request('x'), call())).kind).toBe('granted')
    await Promise.all([session.close(call()), other.close(call())])
  })

  test('T10 a ghost that was not abandoned is told by the next keep-alive', async () => {
    const session = await openThrough()
    door().drop('down')
    const { name, attempt } = await lose(session, request('ghost'), async () => (await claims()).length === 1)
    door().heal()
    const kept = await answered(() => session.keepAlive(nothing, call()))
    expect(kept).toMatchObject({ kind: 'alive', unlisted: [{ name, attempt }] })
    await answered(() => session.close(call()))
  })

  test('T10 the node of an attempt that belongs to a dying session is not taken for the own one (Curator #1018)', async () => {
    const [dying, session] = [await openThrough(), await openSession(await rig.backend())]
    door().drop('down')
    const asked = await lose(dying, request('dying'), async () => (await claims()).length === 1)
    await expect(session.tryAcquire(asked, call())).rejects.toMatchObject(unknown)
    expect(await session.keepAlive(nothing, call())).toMatchObject({ kind: 'alive', unlisted: [] })
    door().heal()
    await Promise.all([answered(() => dying.close(call())), session.close(call())])
  })

  test('T10 nor is its claim, although it was granted there', async () => {
    const backend = await rig.backend()
    const [holder, other, session] = [
      await openSession(backend),
      await openSession(backend),
      await openSession(backend),
    ]
    const held = await holder.tryAcquire(request('x'), call())
    if (held.kind !== 'granted') throw new Error(held.kind)
    const asked = request('x')
    const waits = enqueued(other, asked, call())
    await waitFor('it waits', async () => (await claims()).length === 2 || null)
    await holder.release(held.grant, { keepForMs: 0 }, call())
    expect(await waits).toMatchObject({ kind: 'granted' })
    const kept = await session.keepAlive({ held: [], waiting: [asked] }, call())
    expect(kept).toMatchObject({ kind: 'alive', granted: [] })
    await Promise.all([holder, other, session].map((each) => each.close(call())))
  })

  test('T73 a mark is written over the node of its attempt, so a copy of the join learns that it was abandoned', async () => {
    const backend = await rig.backend()
    const handle = { id: 'late-and-marked', ttlMs: 30_000, holder: 'ada' }
    const { claims: its } = await backend.openClaims(handle, call())
    const asked = request('x')
    expect(await its.join(asked, false, call())).toMatchObject({ kind: 'granted' })
    await its.mark(asked, call())
    // This copy of the session does not know the claims of the first one.
    const copy = await backend.findClaims(handle, call())
    expect(await copy?.claims.join(asked, false, call())).toEqual({ kind: 'abandoned' })
    await its.close(call())
  })

  test('a session whose node an operator has deleted is not prolonged', async () => {
    const session = await openSession(await rig.backend())
    expect(await session.keepAlive(nothing, call())).toMatchObject({ kind: 'alive' })
    for (const path of await rig.remains()) await rig.operator.delete(path)
    expect(await session.keepAlive(nothing, call())).toEqual({ kind: 'gone' })
    await session.close(call())
  })

  test.each([
    ['the member that it has left', 2],
    ['the same member', 1],
  ])(
    'T73 a join that %s gets late comes to nothing, after a mark and after the mark has gone',
    async (_, count) => {
      const session = await openThrough(count)
      const first = door()
      // The session's connection was made last.
      const links: unknown[] = []
      first.hold('up', (link) => links.push(link) === 0)
      const own = links.at(-1)
      first.hold('up', (link) => link === own)
      const asked = await lose(session)
      if (count === 2) first.hold('up')
      await answered(() => session.abandon(asked, call()))
      expect(await attempts()).toHaveLength(1)
      await answered(() => session.keepAlive(nothing, call()))
      await waitFor('the mark has gone', async () => (await attempts()).length === 0 || null)
      first.heal()
      // It was let through, and refused, before a member answers what comes after it.
      await rig.settled()
      expect(await rig.remains()).toEqual([expect.stringMatching(/\/s\//)])
      expect(await session.keepAlive(nothing, call())).toMatchObject({ kind: 'alive', unlisted: [] })
      await answered(() => session.close(call()))
    },
  )

  test('T13 a release whose reply is lost is unknown, and its copy finds nothing to release', async () => {
    const session = await openThrough()
    const asked = request('x')
    const result = await session.tryAcquire(asked, call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    door().drop('down')
    const released = session.release(result.grant, { keepForMs: 0 }, limitedCall(1_000))
    await expect(released).rejects.toMatchObject(unknown)
    door().heal()
    const again = await answered(() => session.release(result.grant, { keepForMs: 0 }, call()))
    expect(again).toBe('not-held')
    await answered(() => session.close(call()))
  })

  test('a claim is released although somebody has deleted the node of its attempt', async () => {
    const session = await openSession(await rig.backend())
    const result = await session.tryAcquire(request('x'), call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    for (const path of await attempts()) await rig.operator.delete(path)
    expect(await session.release(result.grant, { keepForMs: 0 }, call())).toBe('released')
    expect(await claims()).toEqual([])
    await session.close(call())
  })

  test('T81 attempts that were given up leave nothing that grows: no mark if they were answered, none after a keep-alive else', async () => {
    const session = await openThrough()
    const held = request('x')
    await session.tryAcquire(held, call())
    for (let count = 0; count < 20; count++) {
      const asked = request('x')
      const queued = Promise.withResolvers<void>()
      const given = Object.assign(new Cancellation(), { queued: queued.resolve })
      const waits = expect(enqueued(session, asked, given)).rejects.toMatchObject(unknown)
      await queued.promise
      given.cancel(new Error('given up'))
      await waits
      await session.abandon(asked, call())
      expect(await attempts()).toEqual([expect.stringContaining(held.attempt)])
    }
    await answered(() => session.close(call()))
  })
})
