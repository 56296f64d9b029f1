/** T88: a leader that was deposed confirms renewals that its successor never sees. Belief must not outlive the key all the same. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Server, waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { limitedCall, openSession, Rig } from '../../../../test/consul/rig.ts'
import { newSeed } from '../../../../test/seed.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createLocker } from '../../../locker/locker.ts'
import type { AttachedSession } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'

const TTL_MS = 1_000
/** As many renewals are on their way as there are connections to one server, and more. */
const SESSIONS = 24

describe.runIf(wanted('consul'))('belief on three servers', () => {
  let rig: Rig
  beforeAll(async () => {
    rig = await Rig.start({ members: 3 })
  })
  afterAll(() => rig?.[Symbol.asyncDispose]())
  afterEach(async () => {
    for (const member of rig.cluster.members) await member.resume()
    await rig.clear()
  })

  const split = async (): Promise<{ leader: Server; others: readonly Server[] }> => {
    const leader = await rig.cluster.leader()
    return { leader, others: rig.cluster.members.filter((member) => member !== leader) }
  }

  test('T88 a leader that was replaced is resumed while renewals are in its socket: they do not count, also for sessions that were attached before, or are right after it', async () => {
    const { leader, others } = await split()
    const [old, after, now] = await Promise.all([
      rig.backend({ hosts: [leader.url] }),
      rig.backend({ hosts: [leader.url] }),
      rig.backend({ hosts: others.map(({ url }) => url) }),
    ])
    const opened = await Promise.all(Array.from({ length: SESSIONS }, () => openSession(now, TTL_MS)))
    const held = await Promise.all(
      opened.map((session, index) => session.tryAcquire(request(`x${index}`), call())),
    )
    const attached = await Promise.all(opened.map(({ handle }) => old.attachSession(handle, call())))
    await leader.pause()
    await waitFor(
      'all sessions end',
      async () => (await now.list('', { limit: 100 }, limitedCall(2_000))).items.length === 0,
    )
    const goneMs = now.clock.monotonicMs()
    const keep = async (session: AttachedSession<'fenced'> | null, index: number) => {
      const grant = held[index]?.kind === 'granted' ? [held[index].grant] : []
      return session?.keepAlive({ held: grant, waiting: [] }, limitedCall(15_000))
    }
    const kept = Promise.allSettled(attached.map(keep))
    await sleep(100)
    await leader.resume()
    const attaching = opened.map(async ({ handle }, index) =>
      keep(await after.attachSession(handle, limitedCall(15_000)), index),
    )
    const outcomes = await Promise.all([kept, Promise.allSettled(attaching)])
    for (const outcome of outcomes.flat())
      if (outcome.status === 'rejected')
        expect(isHoldfastError(outcome.reason, 'BACKEND_UNAVAILABLE'), `${outcome.reason}`).toBe(true)
      else if (outcome.value?.kind === 'alive')
        expect(outcome.value.since.monotonicMs + outcome.value.ttlMs, 'belief outlives the key').toBeLessThan(
          goneMs,
        )
  })

  test('G3 T88 leaders are stopped in short turns while a client reaches all servers: its belief ends before the key', async () => {
    const seed = newSeed()
    const random = seededRandom(seed)
    const locker = createLocker(await rig.backend(), { ttlMs: 2 * TTL_MS, waitMs: 60_000 })
    const watcher = await rig.backend({ hosts: rig.hosts.toReversed() })
    let isOver = false
    let seen = 0
    const watching = (async () => {
      while (!isOver) {
        const lease = await locker.acquire('x').catch(() => null)
        while (lease?.state === 'held' && !isOver) {
          const found = await watcher.inspect('x', limitedCall(2_000)).catch(() => undefined)
          seen++
          if (found === undefined || found?.holders.some(({ id }) => id === lease.id)) continue
          expect(lease.remainingMs, `seed ${seed}: belief when its key has gone`).toBe(0)
        }
      }
    })()
    for (let turn = 0; turn < 4; turn++) {
      const leader = await rig.cluster.leader()
      await leader.pause()
      await sleep(200 + random.fraction() * 1_800)
      await leader.resume()
      await sleep(random.fraction() * 1_000)
    }
    await waitFor('the holder is seen again and again', async () => seen > 10 || null)
    isOver = true
    await watching
    await locker.close({ graceMs: 0 })
  })
})
