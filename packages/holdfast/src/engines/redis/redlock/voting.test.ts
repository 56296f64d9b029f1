/** One try: who votes, who counts, and that nothing is left of a try that came to nothing. */
import assert from 'node:assert/strict'
import { redisCall, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { libraries } from '../../../../test/redis/clients.ts'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import {
  call,
  eventually,
  hold,
  nodeTimeoutMs,
  RedlockStage,
  request,
  take,
  ttlMs,
  watch,
} from '../../../../test/redlock/stage.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createLocker } from '../../../locker/locker.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'

const nobody = [null, null, null, null, null]

describe.runIf(wanted('redis'))('redlock: one try', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes()
  })
  afterEach(() => nodes.endClients())
  afterAll(() => nodes?.stop())

  test('with 2 of 5 nodes frozen a lock is granted, renewed and released, and the frozen ones are not awaited', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await stage.whileFrozen([0, 3], async () => {
      const held = await hold(session, 'x')
      // The clock stands still: no time-out was needed.
      assert.equal((await session.keepAlive({ held: [held], waiting: [] }, call())).kind, 'alive')
      assert.equal(await session.release(held, { keepForMs: 0 }, call()), 'released')
    })
    await eventually('the frozen ones have let go as well', async () =>
      (await stage.values('x')).every((value) => value === null),
    )
  })

  test('with 3 of 5 nodes frozen a try is refused when one time-out is over, and nothing is left held', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await stage.whileFrozen([0, 1, 2], async () => {
      const trying = take(session, 'x')
      const seen = watch(trying)
      await eventually('the others have voted', async () =>
        (await stage.values('x', [3, 4])).every((value) => value !== null),
      )
      await stage.clock.advance(nodeTimeoutMs - 1)
      assert.equal(seen.state, 'pending')
      await stage.clock.advance(1)
      await assert.rejects(trying, (error) => {
        assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
        assert.match(error.message, /voted on 2 of 5 nodes, and 3 are needed/)
        assert.match(error.message, /node 1 of 5 \(127\.0\.0\.1:\d+\): no answer within 50 ms/)
        assert.equal(error.outcome, 'unknown')
        return true
      })
      assert.deepEqual(await stage.values('x', [3, 4]), [null, null])
    })
    await eventually('T15 what landed late is taken back', async () => {
      const marks = await nodes.call('HLEN', `holdfast:${stage.namespace}:session:${session.id}`)
      return marks.slice(0, 3).every((fields) => fields === 3)
    })
    assert.deepEqual(await stage.values('x'), nobody)
  })

  test('a node that owes an answer is not asked again, so it costs one time-out and not one for each call', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await stage.whileFrozen([0, 1, 2], async () => {
      const first = watch(take(session, 'x'))
      await eventually('the others have voted', async () => (await stage.values('x', [3, 4])).every(Boolean))
      await stage.clock.advance(nodeTimeoutMs)
      await eventually('it is refused', () => first.state === 'rejected')
      // No further time passes.
      await assert.rejects(take(session, 'x'), (error) => {
        assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
        assert.match(error.message, /node 1 of 5 .*: not asked, because it owes an answer/)
        assert.equal(error.outcome, 'not-applied')
        return true
      })
    })
    await eventually('they are asked again when they have answered', async () => {
      const result = await take(session, 'x').catch(() => ({ kind: 'failed' }))
      return result.kind === 'granted'
    })
  })

  test('T24 an even split settles: 2 votes of 4 are no majority, both sides give back, and one gets it next', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session('ada', { nodes: 4 })
    await stage.rival('x', [2, 3])
    const result = await take(session, 'x')
    assert.equal(result.kind, 'busy')
    assert.deepEqual((await stage.values('x', [0, 1, 2, 3])).map(Boolean), [false, false, true, true])
    await stage.remove('x')
    await hold(session, 'x')
  })

  test('answers that came while this process was busy count, also when their time was over meanwhile', async () => {
    const { namespace } = new RedlockStage(nodes)
    const backend = await nodes.backend({ namespace, nodeTimeoutMs, direct: true })
    const session = await backend
      .openSession({ id: newSessionId(), ttlMs, holder: 'ada' }, call())
      .then(namingGrants)
    for (let times = 0; times < 5; times++) {
      const trying = take(session, `x/${times}`)
      // The requests leave, and then the answers are not read for a while.
      await new Promise((resolve) => setImmediate(resolve))
      const endMs = performance.now() + 3 * nodeTimeoutMs
      while (performance.now() < endMs);
      assert.equal((await trying).kind, 'granted')
    }
  })

  test('T25 a release behind a call that is never answered reaches the node all the same', async () => {
    const stage = new RedlockStage(nodes)
    const session = await patientSession(stage)
    const held = await hold(session, 'x')
    await nodes.flush()
    await stage.whileFrozen([0], async () => {
      // It is in flight there when the release comes, which waits behind it.
      await hold(session, 'y')
      assert.equal(await session.release(held, { keepForMs: 0 }, call()), 'released')
      await stage.clock.advance(nodeTimeoutMs)
    })
    await eventually('nobody has it', async () => (await stage.values('x')).every((value) => value === null))
  })

  test('T25 what a failed try has won is given back also behind a call that is never answered', async () => {
    const stage = new RedlockStage(nodes)
    const session = await patientSession(stage)
    await hold(session, 'warm')
    await nodes.flush()
    await stage.rival('x', [2, 3, 4])
    nodes.proxies[2]?.hold('down')
    const trying = take(session, 'x')
    await eventually('two have voted', async () => (await stage.values('x', [0, 1])).every(Boolean))
    await nodes.flush([2])
    await stage.whileFrozen([0], async () => {
      const other = take(session, 'y')
      other.catch(() => {})
      await nodes.flush([0, 2])
      nodes.proxies[2]?.heal()
      await nodes.flush([0])
      await stage.clock.advance(nodeTimeoutMs)
      assert.equal((await trying).kind, 'busy')
      await other.catch(() => {})
    })
    await eventually('what was won is given back', async () =>
      (await stage.values('x', [0, 1])).every((value) => value === null),
    )
  })

  test('T24 T25 two clients who always try at once on 4 nodes both get their turns', async () => {
    const { namespace } = new RedlockStage(nodes)
    const lockers = await Promise.all(
      ['ada', 'bob'].map(async (holder) =>
        createLocker(await nodes.backend({ namespace, nodes: 4, nodeTimeoutMs: 2_000 }), { holder, ttlMs }),
      ),
    )
    let inside = 0
    const turns = await Promise.all(
      lockers.map(async (locker) => {
        for (let turn = 0; turn < 10; turn++)
          await locker.withLease('x', async () => {
            assert.equal(++inside, 1)
            await new Promise((resolve) => setImmediate(resolve))
            inside--
          })
        return 'all'
      }),
    )
    assert.deepEqual(turns, ['all', 'all'])
    await Promise.all(lockers.map((locker) => locker.close()))
  })

  test('T25 a minority win is undone before the answer, so one’s own key never votes against one', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await stage.rival('x', [0, 2, 4])
    for (let tries = 0; tries < 5; tries++) {
      assert.equal((await take(session, 'x')).kind, 'busy')
      assert.deepEqual((await stage.values('x')).map(Boolean), [true, false, true, false, true])
    }
    await stage.remove('x')
    await hold(session, 'x')
  })

  test('T25 an attempt that is asked for again is granted again: its own locks do not refuse it', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const asked = request('x')
    const grants = []
    for (let times = 0; times < 3; times++) {
      const result = await session.tryAcquire(asked, call())
      assert(result.kind === 'granted')
      grants.push(result.grant)
    }
    const [first, ...others] = grants
    assert(first !== undefined && others.every(({ grantId }) => grantId === first.grantId))
    assert.equal(await session.release(first, { keepForMs: 0 }, call()), 'released')
    await eventually('nobody has it', async () => (await stage.values('x')).every((value) => value === null))
  })

  test('T14 T15 a cancelled call is answered at once, and what it won afterwards is given back', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    for (const proxy of nodes.proxies) proxy.hold('down')
    const controller = new AbortController()
    const trying = session.tryAcquire(request('x'), call(controller.signal))
    await eventually('all nodes have granted it', async () => (await stage.values('x')).every(Boolean))
    controller.abort(new Error('gone'))
    await assert.rejects(trying, { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    for (const proxy of nodes.proxies) proxy.heal()
    await eventually('it is given back', async () =>
      (await stage.values('x')).every((value) => value === null),
    )
  })

  test('T15 T73 a request that arrives long after it was given up meets the mark, also when it arrives twice', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const asked = request('x')
    const recordings = nodes.proxies.map((proxy) => proxy.record())
    await session.tryAcquire(asked, call())
    for (const recording of recordings) recording.end()
    await session.abandon(asked, call())
    await eventually('all nodes have the mark', async () => {
      const marks = await nodes.call('HLEN', `holdfast:${stage.namespace}:session:${session.id}`)
      return marks.every((fields) => fields === 3)
    })
    await Promise.all(recordings.map((recording) => recording.replay()))
    assert.deepEqual(await stage.values('x'), nobody)
    assert.equal((await take(await stage.session('bob'), 'x')).kind, 'granted')
  })

  test('T1 a grant counts from before the asking, however long the answers take', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const sentMs = stage.clock.monotonicMs()
    for (const proxy of nodes.proxies) proxy.hold('down')
    const trying = take(session, 'x')
    await eventually('all nodes have granted it', async () => (await stage.values('x')).every(Boolean))
    stage.clock.block(nodeTimeoutMs - 1)
    for (const proxy of nodes.proxies) proxy.heal()
    const result = await trying
    assert(result.kind === 'granted')
    assert.equal(result.grant.since.monotonicMs, sentMs)
    assert.equal(result.grant.ttlMs, ttlMs)
  })

  test('T6 votes that come in when the TTL is over make no lease', async () => {
    const stage = new RedlockStage(nodes)
    const locker = createLocker(await stage.backend(), { ttlMs })
    await locker.withLease('warm up', () => {})
    await nodes.flush()
    for (const proxy of nodes.proxies) proxy.hold('down')
    const acquiring = locker.tryAcquire('x')
    // A node that still owes the answer to what came before is not asked.
    const granted = async () => (await stage.values('x')).filter(Boolean)
    await eventually('a majority has granted it', async () => (await granted()).length >= 3)
    const [first] = await granted()
    // The process is stopped for longer than the TTL, and the answers are there before any timer.
    stage.clock.block(ttlMs + 1)
    for (const proxy of nodes.proxies) proxy.heal()
    const lease = await acquiring.catch(() => null)
    const [second] = await granted()
    assert(
      lease === null || (lease.remainingMs > 0 && second !== first),
      'only what was asked for afterwards counts',
    )
    const closing = locker.close()
    await stage.clock.advance(ttlMs)
    await closing
  })

  test('T26 a try that finds the name taken asks every node once, and so does an acquire that may not wait', async () => {
    const stage = new RedlockStage(nodes)
    const locker = createLocker(await stage.backend(), { ttlMs })
    await locker.withLease('warm up', () => {})
    await nodes.flush()
    await stage.rival('x', stage.all)
    const before = await scriptCalls(nodes)
    assert.equal(await locker.tryAcquire('x'), null)
    assert.deepEqual(
      await scriptCalls(nodes),
      before.map((calls) => calls + 1),
    )
    await assert.rejects(locker.acquire('x', { waitMs: 0 }), { code: 'ACQUIRE_TIMEOUT' })
    assert.deepEqual(
      await scriptCalls(nodes),
      before.map((calls) => calls + 2),
    )
    await locker.close()
  })

  test('T27 an abort is noticed in the pause between two tries', async () => {
    const stage = new RedlockStage(nodes)
    const locker = createLocker(await stage.backend(), { ttlMs })
    await locker.withLease('warm up', () => {})
    await nodes.flush()
    await stage.rival('x', stage.all)
    const before = await scriptCalls(nodes)
    const controller = new AbortController()
    const acquiring = locker.acquire('x', { signal: controller.signal })
    const seen = watch(acquiring)
    await eventually('it has tried', async () => ((await scriptCalls(nodes))[0] ?? 0) > (before[0] ?? 0))
    await nodes.flush()
    assert.equal(seen.state, 'pending')
    const reason = new Error('no longer needed')
    controller.abort(reason)
    // The clock stands still.
    await assert.rejects(acquiring, (error) => error === reason)
    await locker.close()
  })

  test('T7 T17 after a wait of many TTLs a lease has its whole TTL before it', async () => {
    const stage = new RedlockStage(nodes)
    const locker = createLocker(await stage.backend(), { ttlMs })
    await locker.withLease('warm up', () => {})
    await nodes.flush()
    await stage.rival('x', stage.all)
    const acquiring = locker.acquire('x', { waitMs: Number.POSITIVE_INFINITY })
    const seen = watch(acquiring)
    for (let seconds = 0; seconds < (5 * ttlMs) / 1_000; seconds++) {
      await stage.clock.advance(1_000)
      await nodes.flush()
    }
    assert.equal(seen.state, 'pending')
    await stage.remove('x')
    while (seen.state === 'pending') {
      await stage.clock.advance(100)
      await nodes.flush()
    }
    const lease = await acquiring
    assert(lease.remainingMs > ttlMs / 2)
    await locker.close()
  })

  test('one server under two addresses is refused, with the addresses', async () => {
    const [first, second] = nodes.servers
    assert(first !== undefined && second !== undefined)
    const stage = new RedlockStage(nodes)
    const backend = await stage.backend({ library: sameServerTwice() })
    const opening = backend
      .openSession({ id: newSessionId(), ttlMs, holder: 'ada' }, call())
      .then(namingGrants)
    await assert.rejects(opening, (error) => {
      assert(isHoldfastError(error, 'UNSUPPORTED'))
      assert.match(error.message, /node 1 of 5 .* and node 3 of 5 .* are one and the same server/)
      return true
    })
  })

  test('T77 votes that are missing at the grant are asked for once more right after it', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await hold(session, 'warm')
    await eventually('all have voted', async () => !(await stage.values('warm')).includes(null))
    await stage.rival('x', [4])
    // While the answer of one is awaited, the rival gives its vote back.
    stage.proxy(3).hold('down')
    const held = await hold(session, 'x')
    await stage.remove('x', [4])
    stage.proxy(3).heal()
    await eventually('all have it', async () => {
      const values = await stage.values('x')
      return values.every((value) => value?.startsWith(`hfr1|${held.attempt}|`))
    })
    assert.equal(await session.release(held, { keepForMs: 0 }, call()), 'released')
    await eventually('nothing is left', async () =>
      (await stage.values('x')).every((value) => value === null),
    )
  })

  test('T77 also the vote of a server that did not know the session', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await hold(session, 'warm')
    await nodes.flush()
    await redisCall(stage.server(4), 'DEL', `holdfast:${stage.namespace}:session:${session.id}`)
    // There is no majority before it has answered that it does not know the session.
    stage.proxy(2).hold('down')
    stage.proxy(3).hold('down')
    const holding = hold(session, 'x')
    // The request has left after the first, and is answered after the second.
    await nodes.flush([2, 3])
    await nodes.flush([2, 3])
    stage.proxy(2).heal()
    const held = await holding
    stage.proxy(3).heal()
    await eventually('all have it', async () => {
      const values = await stage.values('x')
      return values.every((value) => value?.startsWith(`hfr1|${held.attempt}|`))
    })
  })

  /** The third address leads to the first server. */
  function sameServerTwice() {
    const [library] = libraries
    assert(library !== undefined)
    return {
      ...library,
      open: (url: string) => {
        const [first, , third] = nodes.proxies
        return library.open(url.endsWith(`:${third?.port}`) ? `redis://127.0.0.1:${first?.port}` : url)
      },
    }
  }
})

/** Its TTL is longer than a test waits: what is gone did not just expire. */
async function patientSession(stage: RedlockStage) {
  const backend = await stage.backend()
  return backend.openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'ada' }, call()).then(namingGrants)
}

/** How many scripts each node has run. */
async function scriptCalls({ servers }: Nodes): Promise<number[]> {
  return Promise.all(
    servers.map(async (server) => {
      const stats = String(await redisCall(server, 'INFO', 'commandstats'))
      const calls = [...stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)].map(([, count]) => Number(count))
      return calls.reduce((sum, count) => sum + count, 0)
    }),
  )
}
