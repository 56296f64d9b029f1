/** Leases stay held by a majority, and end when the majority is gone; and how operators see them. */
import assert from 'node:assert/strict'
import { redisCall, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import {
  call,
  eventually,
  hold,
  RedlockStage,
  request,
  take,
  ttlMs,
  watch,
} from '../../../../test/redlock/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import { createLocker } from '../../../locker/locker.ts'
import { Operator, operatorCall } from '../../../testing/conformance/operator.ts'

describe.runIf(wanted('redis'))('redlock: keeping', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes()
  })
  afterEach(() => nodes.endClients())
  afterAll(() => nodes?.stop())

  test('a renewal that reaches no majority says how many nodes it reached, and which not', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const held = await hold(session, 'x')
    await nodes.flush()
    await stage.whileFrozen([1, 2, 4], async () => {
      const renewing = stage.answered(session.keepAlive({ held: [held], waiting: [] }, call()), [1, 2, 4])
      await assert.rejects(renewing, (error) => {
        assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
        assert.match(error.message, /on 2 of 5 nodes, and 3 are needed .*node 2 of 5/)
        assert.equal(error.outcome, 'unknown')
        return true
      })
    })
  })

  test('what a node has lost is set there again once a majority is confirmed', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const held = await hold(session, 'x')
    await nodes.flush()
    await stage.remove('x', [0, 3])
    assert.equal((await session.keepAlive({ held: [held], waiting: [] }, call())).kind, 'alive')
    await eventually('all have it', async () => (await stage.values('x')).every(Boolean))
    // Now other two may go.
    await stage.remove('x', [1, 2])
    const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
    assert(kept.kind === 'alive' && kept.lost.length === 0)
  })

  test('a close gives up every part of the claims, also after one of them has failed', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const names = Array.from({ length: 700 }, (_, index) => `many ${index}`)
    await Promise.all(names.map((name) => hold(session, name)))
    await nodes.flush()
    const left: number[] = []
    await stage.whileFrozen([1, 2, 4], async () => {
      const closing = session.close(callWith(undefined, { onProgress: (each: number) => left.push(each) }))
      await assert.rejects(stage.answered(closing, [1, 2, 4]), { code: 'BACKEND_UNAVAILABLE' })
    })
    await nodes.flush()
    assert.deepEqual(left, [700, 700], 'none is told as given up')
    for (const name of [names[0], names[699]] as string[])
      assert.deepEqual(await stage.values(name), [null, null, null, null, null])
  })

  test('what a node has lost is not set there again once the session is being closed', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const held = await hold(session, 'x')
    await nodes.flush()
    // Node 3 has lost everything, and its answer to the keep-alive comes late.
    await stage.remove('x', [3])
    const key = `holdfast:${stage.namespace}:session:${session.handle.id}`
    await redisCall(stage.server(3), 'DEL', key)
    stage.proxy(3).hold('down')
    assert.equal((await session.keepAlive({ held: [held], waiting: [] }, call())).kind, 'alive')
    await stage.whileFrozen([0, 1, 2, 4], async () => {
      const closing = watch(session.close(call()))
      stage.proxy(3).heal()
      for (let round = 0; round < 3; round++) await nodes.flush([0, 1, 2, 4])
      assert.equal(closing.state, 'pending')
      assert.deepEqual(await stage.values('x', [3]), [null])
      assert.equal(await redisCall(stage.server(3), 'EXISTS', key), 0)
    })
  })

  test('T31 what a majority has lost is lost, and not set again', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const [x, y] = [await hold(session, 'x'), await hold(session, 'y')]
    await nodes.flush()
    await stage.remove('x', [0, 2, 3])
    const kept = await session.keepAlive({ held: [x, y], waiting: [] }, call())
    assert(kept.kind === 'alive')
    assert.deepEqual(kept.lost, [{ attempt: x.attempt, reason: 'deleted' }])
    await nodes.flush()
    await nodes.flush()
    assert.deepEqual((await stage.values('x')).map(Boolean), [false, true, false, false, true])
  })

  test('a claim that stays unknown is given up after half a TTL, so that the others can be confirmed', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await stage.rival('x', [3, 4])
    const [x, y] = [await hold(session, 'x'), await hold(session, 'y')]
    // The votes, and what asks for the missing ones.
    await nodes.flush()
    await nodes.flush()
    await stage.remove('x', [3, 4])
    // Others have taken those two votes; what the first node has is not known.
    await stage.rival('x', [3, 4])
    await stage.whileFrozen([0], async () => {
      const renew = () => stage.answered(session.keepAlive({ held: [x, y], waiting: [] }, call()), [0])
      await assert.rejects(renew(), /keep-alive of "x": renewed on 2 of 5 nodes/)
      await stage.clock.advance(ttlMs / 2)
      const kept = await renew()
      assert(kept.kind === 'alive')
      assert.deepEqual(kept.lost, [{ attempt: x.attempt, reason: 'unreachable' }])
    })
  })

  test('T16 G3 when all nodes freeze, a lease is lost at its deadline, not later', async () => {
    const stage = new RedlockStage(nodes)
    const locker = createLocker(await stage.backend(), { ttlMs })
    const lease = await locker.acquire('x')
    const deadlineMs = stage.clock.monotonicMs() + lease.remainingMs
    await nodes.flush()
    await stage.whileFrozen(stage.all, async () => {
      await stage.clock.advance(deadlineMs - stage.clock.monotonicMs() - 1)
      assert.equal(lease.state, 'jeopardy')
      await stage.clock.advance(1)
      assert.equal(lease.state, 'lost')
      assert(lease.signal.aborted)
    })
    const closing = locker.close()
    await stage.clock.advance(ttlMs)
    await closing
  })

  test('T47 the release of what has expired answers at once that it is not held, and touches no successor', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const held = await hold(session, 'x')
    await nodes.flush()
    await stage.remove('x')
    await stage.rival('x', stage.all)
    assert.equal(await session.release(held, { keepForMs: 0 }, call()), 'not-held')
    assert((await stage.values('x')).every((value) => value === 'a rival'))
  })

  test('T47 G11 withLease returns what its body returned although the lock had expired', async () => {
    const stage = new RedlockStage(nodes)
    const locker = createLocker(await stage.backend(), { ttlMs })
    const result = await locker.withLease('x', async () => {
      await nodes.flush()
      await stage.remove('x')
      return 42
    })
    assert.equal(result, 42)
    await locker.close()
  })

  test('T56 a name is not called free because nodes are down: what may be held is shown, and without a majority nothing', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session('ada')
    await hold(session, 'x')
    await nodes.flush()
    const backend = await stage.backend()
    await backend.inspect('warm up', call())
    const look = (frozen: readonly number[]) => stage.answered(backend.inspect('x', call()), frozen)
    await stage.whileFrozen([0, 1], async () => {
      assert.equal((await look([0, 1]))?.holders[0]?.holder, 'ada')
    })
    // Two of the three that remain have lost it: with the two that are silent it may still be held.
    await stage.whileFrozen([0, 1], async () => {
      await stage.remove('x', [2, 3])
      assert.equal((await look([0, 1]))?.holders[0]?.holder, 'ada')
    })
    await stage.whileFrozen([0, 1, 2], async () => {
      await assert.rejects(look([0, 1, 2]), { code: 'BACKEND_UNAVAILABLE' })
    })
    nodes.clock.step(ttlMs)
    await eventually('with all of them it is known to be free', async () => {
      const found = await look([]).catch(() => 'unknown')
      return found === null
    })
  })

  test('T74 G7 a force release ends exactly whom it means, also a stranger', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session('ada')
    const backend = await stage.backend()
    const operator = new Operator(backend)
    const held = await hold(session, 'x')
    assert.equal(await operator.force('x', ({ holder }) => holder === 'bob'), 0)
    assert.equal(await operator.force('x', ({ holder }) => holder === 'ada'), 1)
    const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
    assert(kept.kind === 'alive')
    const detail = 'an operator said so'
    assert.deepEqual(kept.lost, [{ attempt: held.attempt, reason: 'force-released', detail }])
    await stage.rival('x', stage.all)
    assert.equal((await backend.inspect('x', call()))?.holders[0]?.holder, '(another client)')
    // Bound to what was seen: another stranger that comes in between stays (T78, late operators).
    const ids = (await backend.inspect('x', call()))?.holders.map(({ id }) => id) ?? []
    await stage.remove('x', stage.all)
    await stage.rival('x', stage.all, 'another value')
    assert.equal(await backend.forceRelease('x', ids, 'late', operatorCall()), 0)
    assert.equal(await operator.force('x'), 1)
    assert.equal((await take(session, 'x')).kind, 'granted')
  })

  test('more leases than fit into one call are renewed and given up in parts', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const asked = Array.from({ length: 1_100 }, (_, index) => request(`shelf/${index}`))
    const results = await Promise.all(asked.map((each) => session.tryAcquire(each, call())))
    assert(results.every(({ kind }) => kind === 'granted'))
    const held = results.flatMap((result) => (result.kind === 'granted' ? [result.grant] : []))
    const kept = await session.keepAlive({ held, waiting: [] }, call())
    assert(kept.kind === 'alive' && kept.lost.length === 0 && kept.unlisted.length === 0)
    await session.close(call())
    const backend = await stage.backend()
    assert.deepEqual(await listAll(backend, '', call()), [])
  })

  test('closing says after each part how many are left at a majority', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const names = Array.from({ length: 1_200 }, (_, index) => `many-${index}`)
    for (let from = 0; from < names.length; from += 100)
      await Promise.all(names.slice(from, from + 100).map((name) => hold(session, name)))
    await nodes.flush()
    const progress: number[] = []
    await session.close(callWith(undefined, { onProgress: (left: number) => progress.push(left) }))
    assert.deepEqual([...new Set(progress)], [700, 200, 0])
    assert.deepEqual(
      progress,
      progress.toSorted((a, b) => b - a),
    )
    await eventually('all are free', async () =>
      (await stage.values('many-1199')).every((value) => value === null),
    )
  })
})
