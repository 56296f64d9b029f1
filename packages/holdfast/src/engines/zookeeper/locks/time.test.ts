/** What the clocks and the bounds of members mean for sessions and for closed names. Belief itself: client/session.test.ts. */
import { appendFileSync } from 'node:fs'
import { join } from 'node:path'
import { createClock, startProxy } from 'holdfast-lab/faults'
import { waitFor, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { openSession, Rig } from '../../../../test/zookeeper/rig.ts'
import { systemRandom } from '../../../base/ids.ts'
import { call, request } from '../../../testing/conformance/requests.ts'

const HOUR_MS = 3_600_000
const settings = { maxSessionTimeout: '60000' }

describe.runIf(wanted('zookeeper'))('time', () => {
  test('T9 the wall clocks of all members are stepped: sessions live on, tokens go on, and a name that is kept closed opens early', async () => {
    const clock = createClock()
    await using rig = await Rig.start({ members: 3, settings, clock })
    const session = await openSession(await rig.backend(), 10_000)
    const take = async (name: string) => {
      const result = await session.tryAcquire(request(name), call())
      if (result.kind !== 'granted') throw new Error(result.kind)
      return result.grant
    }
    const [held, closed] = [await take('held'), await take('closed')]
    await session.release(closed, { keepForMs: HOUR_MS / 2 }, call())
    expect((await session.tryAcquire(request('closed'), call())).kind).toBe('busy')

    for (const stepMs of [HOUR_MS, -2 * HOUR_MS]) {
      clock.step(stepMs)
      const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
      expect(kept).toMatchObject({ kind: 'alive', lost: [] })
      expect((await take(`after ${stepMs}`)).token).toBeGreaterThan(closed.token)
      // It counts from the leader's wall clock, and info says so.
      if (stepMs > 0) await session.release(await take('closed'), { keepForMs: 0 }, call())
    }
    await session.close(call())
  })

  test('T4 a member grants less time than the last one did: the session has that much from then on', async () => {
    await using rig = await Rig.start({ members: 3, settings })
    const [first, second] = rig.cluster.members
    if (first === undefined || second === undefined) throw new Error('no members')
    appendFileSync(join(second.folder, 'zoo.cfg'), 'maxSessionTimeout=3000\n')
    await second.restart()
    await rig.settled()
    await using door = await startProxy(first)
    const hosts = [`${door.host}:${door.port}`, `${second.host}:${second.port}`]
    const backend = await rig.backend({ hosts, random: { ...systemRandom, fraction: () => 0 } })
    const session = await openSession(backend, 20_000)
    expect(session.ttlMs).toBe(20_000)
    door.reset()
    door.refuse()
    const kept = await waitFor('a keep-alive', () => session.keepAlive({ held: [], waiting: [] }, call()))
    expect(kept).toMatchObject({ kind: 'alive', ttlMs: 3_000 })
    const result = await session.tryAcquire(request('x'), call())
    expect(result).toMatchObject({ kind: 'granted', grant: { ttlMs: 3_000 } })
    await session.close(call())
  })
})
