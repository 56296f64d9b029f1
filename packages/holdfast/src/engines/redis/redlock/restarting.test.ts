/** Nodes that crash and come back with nothing, and nodes whose clocks are set. */
import assert from 'node:assert/strict'
import { createClock, type Clock as ServerClock } from 'holdfast-lab/faults'
import { redisCall, wanted } from 'holdfast-lab/servers'
import { afterEach, beforeEach, describe, test } from 'vitest'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import { call, eventually, hold, RedlockStage, take, ttlMs } from '../../../../test/redlock/stage.ts'
import { isHoldfastError } from '../../../base/errors.ts'

const maxTtlMs = 60_000

describe.runIf(wanted('redis'))('redlock: nodes that restart', () => {
  let nodes: Nodes
  let clocks: readonly ServerClock[]
  let stage: RedlockStage
  beforeEach(async () => {
    clocks = Array.from({ length: 5 }, () => createClock())
    nodes = await startNodes({ clocks, maxTtlMs })
    stage = new RedlockStage(nodes)
  })
  afterEach(() => nodes?.stop())

  /** As in a power cut: nothing is kept, and clients connect again by themselves. */
  async function crash(index: number): Promise<void> {
    await stage.server(index).kill()
    await stage.server(index).restart()
    assert.deepEqual(await redisCall(stage.server(index), 'KEYS', '*'), [])
  }

  /** Ada holds it on the first three nodes and on no other. */
  async function heldByThree() {
    const ada = await stage.session('ada')
    await stage.rival('x', [3, 4])
    const held = await hold(ada, 'x')
    await nodes.flush()
    await stage.remove('x', [3, 4])
    return { ada, held }
  }

  test('G1 a node that has forgotten a lock does not vote for another before the lock may have been over', async () => {
    const { ada, held } = await heldByThree()
    await crash(2)
    const bob = await stage.session('bob')
    assert.equal((await take(bob, 'x')).kind, 'busy')
    assert.equal(await ada.release(held, { keepForMs: 0 }, call()), 'not-held', 'two of five are no majority')
  })

  test('G1 nor does one that came back with an old snapshot, in which the sessions are and the lock is not', async () => {
    const bob = await stage.session('bob')
    await redisCall(stage.server(2), 'SAVE')
    const { held } = await heldByThree()
    await stage.server(2).kill()
    await stage.server(2).restart()
    const sessions = (await redisCall(stage.server(2), 'KEYS', '*:session:*')) as string[]
    assert(
      sessions.some((key) => key.endsWith(bob.id)),
      'bob is known there',
    )
    assert.equal(await redisCall(stage.server(2), 'GET', stage.key(held.name)), null)
    await nodes.flush()
    assert.equal((await take(bob, 'x')).kind, 'busy')
  })

  test('G1 nor does one that comes back so while it is asked, and whose client asks again', async () => {
    const bob = await stage.session('bob')
    await redisCall(stage.server(2), 'SAVE')
    await heldByThree()
    stage.proxy(2).hold('up')
    const taking = take(bob, 'x')
    await stage.server(2).kill()
    await stage.server(2).restart()
    stage.proxy(2).heal()
    assert.equal((await taking).kind, 'busy')
    await eventually('nothing is left there', async () =>
      (await stage.values('x', [2, 3, 4])).every((value) => value === null),
    )
  })

  test('control: a client that trusts it at once gets what another holds', async () => {
    const { ada, held } = await heldByThree()
    await crash(2)
    const bob = await stage.session('bob', { persistence: 'every-write' })
    assert.equal((await take(bob, 'x')).kind, 'granted')
    // Ada believed it until now.
    const kept = await ada.keepAlive({ held: [held], waiting: [] }, call())
    assert(kept.kind === 'alive')
    assert.equal(kept.lost[0]?.attempt, held.attempt)
  })

  test('the votes of a restarted node count again when the longest TTL is over', async () => {
    for (const index of [0, 1, 2]) await crash(index)
    const ada = await stage.session('ada')
    await assert.rejects(take(ada, 'x'), (error) => {
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
      assert.match(
        error.message,
        /voted on 2 of 5 nodes, and 3 are needed\. 3 of 5 answered, but have no vote yet.*maxTtlMs \(60000 ms\).*votes in 6[01] s.*persistence: 'every-write'/,
      )
      assert.equal(error.outcome, 'not-applied')
      return true
    })
    assert.deepEqual(await stage.values('x'), [null, null, null, null, null])
    for (const clock of clocks) clock.step(maxTtlMs + 5_000)
    const again = await stage.session('ada')
    assert.equal((await take(again, 'x')).kind, 'granted')
  })

  test('a node that kept the trace of another process is not trusted either, whatever its uptime says', async () => {
    // As after a fail-over to a replica that has run for days.
    for (const index of [0, 1, 2])
      await redisCall(stage.server(index), 'SET', 'holdfast:redlock:node', `${'0'.repeat(40)}|0`)
    const ada = await stage.session('ada')
    await assert.rejects(take(ada, 'x'), /3 of 5 answered, but have no vote yet/)
  })

  test('a lease outlives the restart of every node, one after the other', async () => {
    const ada = await stage.session('ada')
    const held = await hold(ada, 'x')
    for (const index of stage.all) {
      await nodes.flush()
      await crash(index)
      await eventually('it is told of the session and the lock again', async () => {
        const kept = await ada.keepAlive({ held: [held], waiting: [] }, call())
        assert(kept.kind === 'alive' && kept.lost.length === 0, 'never lost')
        return (await stage.values('x')).every(Boolean)
      })
    }
    assert.equal(await ada.release(held, { keepForMs: 0 }, call()), 'released')
  })

  test('T9 when the clocks of a majority are set forward there are two believers, and the older learns it at its next renewal', async () => {
    const ada = await stage.session('ada')
    const held = await hold(ada, 'x')
    await nodes.flush()
    const bob = await stage.session('bob')
    assert.equal((await take(bob, 'x')).kind, 'busy')
    for (const clock of clocks.slice(0, 3)) clock.step(ttlMs)
    assert.equal(
      (await take(await stage.session('eve'), 'x')).kind,
      'granted',
      'nothing in Redlock prevents it',
    )
    // No time has passed for ada, and no token tells the two apart: that is what the type says.
    const kept = await ada.keepAlive({ held: [held], waiting: [] }, call())
    assert(kept.kind === 'gone' || kept.lost[0]?.attempt === held.attempt)
  })

  test('diagnose tells of clocks that are apart', async () => {
    const codes = async () =>
      (await (await stage.backend()).diagnose?.(call()))?.map(({ code }) => code) ?? []
    assert(!(await codes()).includes('HOLDFAST_REDLOCK_CLOCKS'))
    clocks[3]?.step(-10_000)
    assert((await codes()).includes('HOLDFAST_REDLOCK_CLOCKS'))
  })

  test('T9 the clocks of a minority may say what they like', async () => {
    const ada = await stage.session('ada')
    const held = await hold(ada, 'x')
    await nodes.flush()
    clocks[0]?.step(10 * ttlMs)
    clocks[4]?.step(-10 * ttlMs)
    const bob = await stage.session('bob')
    assert.equal((await take(bob, 'x')).kind, 'busy')
    const kept = await ada.keepAlive({ held: [held], waiting: [] }, call())
    assert(kept.kind === 'alive' && kept.lost.length === 0)
  })
})
