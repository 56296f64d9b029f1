/** The end of a run: nothing goes wrong any more, everybody is served, everything is given back, nothing is left. */
import assert from 'node:assert/strict'
import { forget } from '../../../src/kit/rules.ts'
import { LATEST_MS, ttls } from './commands.ts'
import { CALL_TIMEOUT_MS } from './machine.ts'
import { type LockerWorld, NAMESPACE } from './world.ts'

const LONGEST_TTL_MS = Math.max(...ttls)
/** Enough for everybody who can be waiting, one after the other, bodies included. */
const LONGEST_LINE_MS = 120_000

export async function quiesce(world: LockerWorld): Promise<void> {
  for (const machine of world.machines) {
    machine.calm()
    machine.faults.calm()
  }
  // Long enough for a keep-alive of everybody: who has been ended by others knows it by now (G3).
  await world.clock.advance(LONGEST_TTL_MS)
  world.check()
  // A twin of its request that arrived after the deletion may have taken the name for it again.
  const deceived = world.liveLeases.filter((lease) => !world.history.holds(lease))
  assert.deepEqual(deceived, [], 'G3 a keep-alive has not told of a loss')
  await serveEverybody(world)
  // Requests in flight have landed by now, and claims that nobody owns are gone a TTL later (G6).
  await world.clock.advance(LATEST_MS + LONGEST_TTL_MS + CALL_TIMEOUT_MS)
  world.check()
  for (const { name, data } of world.engine.list(NAMESPACE, '').items)
    if (data !== undefined)
      world.engine.step((table) =>
        forget(table, { namespace: NAMESPACE, name }, data, { notAfterMs: Number.POSITIVE_INFINITY }),
      )
  assert.deepEqual(world.engine.list(NAMESPACE, '').items, [], 'G6 something is left behind')

  await drive(world, Promise.all(world.machines.map((machine) => machine.locker.close())), 'closing')
  await world.clock.advance(LONGEST_TTL_MS)
  assert.deepEqual(
    world.engine.stats(),
    { sessions: 0, names: 0, waiters: 0, deadlines: 0 },
    'G6 after closing',
  )
  assert.equal(world.clock.pendingTimers, 0, 'a timer is left behind')
  assert.deepEqual(world.history.violations, [])
}

/** Every waiter is granted when the ones before it release (G10). */
async function serveEverybody(world: LockerWorld): Promise<void> {
  const startedMs = world.clock.monotonicMs()
  for (;;) {
    for (const lease of world.liveLeases)
      world.follow({ what: 'release', caller: new AbortController() }, [], () => lease.release())
    await world.clock.advance(100)
    world.check()
    if (world.pending.size === 0 && world.liveLeases.length === 0) return
    const tookMs = world.clock.monotonicMs() - startedMs
    const waiting = [...world.pending].map(({ what }) => what).join(', ')
    assert(tookMs < LONGEST_LINE_MS, `G10 after ${tookMs} ms without faults, these still wait: ${waiting}`)
  }
}

async function drive(world: LockerWorld, work: Promise<unknown>, what: string): Promise<void> {
  let done = false
  work.then(
    () => {
      done = true
    },
    (error: unknown) => world.history.violations.push(`${what}: ${String(error)}`),
  )
  for (let steps = 0; !done; steps++) {
    assert(steps < 300, `${what} does not end`)
    await world.clock.advance(100)
  }
}
