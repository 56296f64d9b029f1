import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, describe, onTestFinished, test } from 'vitest'
import { createEventStage, documentedFields, kinds } from '../../test/event-stage.ts'
import { tableRows } from '../../test/markdown-table.ts'
import { sqliteIdempotent } from '../engines/sqlite/lockfree/index.ts'
import { memoryGuard } from '../guards/memory.ts'
import { optimisticUpdate } from '../lockfree/optimistic-update.ts'
import { election, type Term } from '../recipes/election.ts'
import { watchLockOrder } from '../recipes/lock-order.ts'
import { tickRunner } from '../recipes/schedule.ts'
import { emit, hasListeners, onEvent, type WarningCodes, warn } from './events.ts'

const setStage = createEventStage()

describe('events of acquiring', () => {
  test('waiting, then acquired with the time that was waited', async () => {
    const { ours, other, clock, one, eventsOf, about } = setStage()
    const first = await other.acquire('n')
    const acquiring = ours.acquire('n', { waitMs: 5_000 })
    await clock.advance(1_200)
    const { attemptId, ...waiting } = one('waiting')
    assert.deepEqual(waiting, { ...about, mode: 'exclusive', waitMs: 5_000 })
    assert.deepEqual(eventsOf('acquired'), [])
    await first.release()
    const lease = await acquiring
    const { id, fence } = lease
    const granted = {
      ...about,
      attemptId,
      id,
      token: fence.token,
      mode: 'exclusive' as const,
      waitedMs: 1_200,
    }
    assert.deepEqual(one('acquired'), granted)
  })

  test('acquired at once has waited for nothing, and was not waiting', async () => {
    const { ours, one, eventsOf } = setStage()
    await using _ = await ours.acquire('n')
    assert.equal(one('acquired').waitedMs, 0)
    assert.deepEqual(eventsOf('waiting'), [])
  })

  test('busy', async () => {
    const { ours, other, one, eventsOf, about } = setStage()
    await using _ = await other.acquire('n')
    assert.equal(await ours.tryAcquire('n'), null)
    const { attemptId: _id, ...event } = one('busy')
    assert.deepEqual(event, { ...about, mode: 'exclusive', waitedMs: 0 })
    assert.deepEqual(eventsOf('failed'), [], 'busy is an answer, not a failure')
  })

  test('timed-out', async () => {
    const { ours, other, clock, one, eventsOf, about } = setStage()
    await using _ = await other.acquire('n')
    const acquiring = ours.acquire('n', { waitMs: 700 }).catch((error) => error)
    await clock.advance(700)
    assert.equal((await acquiring).code, 'ACQUIRE_TIMEOUT')
    const { attemptId } = one('timed-out')
    assert.deepEqual(one('timed-out'), { ...about, attemptId, mode: 'exclusive', waitedMs: 700 })
    assert.deepEqual(eventsOf('failed'), [])
  })

  test('failed for good, with the error that the caller gets', async () => {
    const { ours, other, clock, one, about } = setStage()
    await using _ = await other.acquire('n')
    const controller = new AbortController()
    const acquiring = ours.acquire('n', { signal: controller.signal })
    await clock.advance(300)
    controller.abort('enough')
    await assert.rejects(acquiring, (error) => error === 'enough')
    const { attemptId } = one('failed')
    const failed = { error: 'enough', final: true, outcome: 'cancelled', waitedMs: 300 } as const
    assert.deepEqual(one('failed'), { ...about, attemptId, mode: 'exclusive', ...failed })
  })

  test('a full queue, a closing locker and a broken engine have an outcome each', async () => {
    const { ours, other, clock, failing, eventsOf } = setStage()
    await using _ = await other.acquire('n')
    const outcomes = () => eventsOf('failed').flatMap(({ final, outcome }) => (final ? [outcome] : []))
    await assert.rejects(ours.acquire('n', { maxWaiters: 0 }), { code: 'QUEUE_FULL' })
    assert.deepEqual(outcomes(), ['queue-full'])
    failing.add('tryAcquire')
    await assert.rejects(ours.tryAcquire('n'), { message: /tryAcquire failed/ })
    assert.deepEqual(outcomes(), ['queue-full', 'failed'])
    const waiting = assert.rejects(ours.acquire('n'), { code: 'CLOSED' })
    await clock.settle()
    await ours.close()
    await waiting
    assert.deepEqual(outcomes(), ['queue-full', 'failed', 'cancelled'])
  })

  test('a claim says of which kind it is', async () => {
    const { ours, eventsOf } = setStage()
    await using _shared = await ours.acquire('s', { mode: 'shared' })
    await using _permit = await ours.acquirePermits('p', { capacity: 2 })
    assert.equal(await ours.tryAcquire('s'), null)
    assert.deepEqual(
      [...eventsOf('acquired'), ...eventsOf('busy')].map(({ mode }) => mode),
      ['shared', 'permits', 'exclusive'],
    )
  })

  test('owner and note of the call are in all its events and in those of its lease, and in no other', async () => {
    const { ours, other, clock, failing, one, eventsOf } = setStage()
    const asked = { owner: 'order 7', note: 'nightly' }
    const told = (event: object) => ({
      owner: (event as { owner?: string }).owner,
      note: (event as { note?: string }).note,
    })
    const first = await other.acquire('n')
    assert.equal(await ours.tryAcquire('n', asked), null)
    await assert.rejects(ours.acquire('n', { ...asked, maxWaiters: 0 }), { code: 'QUEUE_FULL' })
    const late = assert.rejects(ours.acquire('n', { ...asked, waitMs: 700 }), { code: 'ACQUIRE_TIMEOUT' })
    await clock.advance(700)
    await late
    await first.release()
    const lease = await ours.acquire('n', { ...asked, warnHoldMs: 0 })
    await clock.advance(5_600)
    failing.add('release')
    await lease.release()
    const kinds = ['busy', 'failed', 'waiting', 'timed-out', 'acquired', 'held-long', 'released'] as const
    for (const kind of [...kinds, 'release-failed'] as const) assert.deepEqual(told(one(kind)), asked, kind)
    const permit = await ours.acquirePermits('p', { ...asked, capacity: 2 })
    await ours.acquire('plain', { owner: 'order 8' })
    assert.deepEqual(eventsOf('acquired').slice(1).map(told), [asked, { owner: 'order 8', note: undefined }])
    failing.clear()
    failing.add('keepAlive')
    await clock.advance(20_000)
    assert.equal(permit.state, 'lost')
    for (const kind of ['jeopardy', 'lost'] as const)
      assert.deepEqual(
        eventsOf(kind)
          .map(told)
          .find(({ note }) => note),
        asked,
      )
  })

  test('failed for now, when it goes on trying', async () => {
    const { ours, clock, failing, eventsOf, one } = setStage()
    failing.add('enqueue')
    const acquiring = ours.acquire('n')
    await clock.settle()
    failing.clear()
    await clock.advance(1_000)
    await using lease = await acquiring
    assert.equal(one('failed').final, false)
    assert.match(String(one('failed').error), /enqueue failed/)
    assert.deepEqual(
      eventsOf('acquired').map(({ id }) => id),
      [lease.id],
    )
  })
})

describe('events of holding', () => {
  test('renewed says how many leases one keep-alive served', async () => {
    const { ours, clock, eventsOf } = setStage()
    await using _ = await ours.acquireAll(['a', 'b', 'c'])
    await clock.advance(5_600)
    assert.deepEqual(eventsOf('renewed')[0], {
      backend: 'memory',
      namespace: 'default',
      leases: 3,
      tookMs: 0,
    })
  })

  test('renewal-failed, jeopardy once, and lost when the deadline comes', async () => {
    const { ours, clock, failing, eventsOf, one, about } = setStage()
    const lease = await ours.acquire('n')
    const { id, fence } = lease
    failing.add('keepAlive')
    await clock.advance(5_600)
    assert.match(String(eventsOf('renewal-failed')[0]?.error), /keepAlive failed/)
    assert.equal(eventsOf('renewal-failed')[0]?.leases, 1)
    const { remainingMs, ...rest } = one('jeopardy')
    assert.deepEqual(rest, { ...about, id, mode: 'exclusive' as const, token: fence.token })
    assert.ok(remainingMs > 0 && remainingMs < 15_000)
    await clock.advance(15_000)
    assert.ok(eventsOf('renewal-failed').length > 1)
    const lost = {
      ...about,
      id,
      mode: 'exclusive' as const,
      token: fence.token,
      reason: 'unreachable' as const,
      heldForMs: 15_000 - 152,
    }
    assert.deepEqual(one('lost'), lost)
    assert.equal(await lease.release(), 'not-held')
    assert.deepEqual(eventsOf('released'), [], 'what is lost is not released')
  })

  test('held-long once for each lease', async () => {
    const { ours, clock, one, eventsOf, about } = setStage()
    await using lease = await ours.acquire('n', { warnHoldMs: 20_000 })
    await using _ = await ours.acquire('m', { warnHoldMs: Number.POSITIVE_INFINITY })
    await clock.advance(19_999)
    assert.deepEqual(eventsOf('held-long'), [])
    await clock.advance(60_000)
    const { heldForMs, ...rest } = one('held-long')
    assert.deepEqual(rest, { ...about, id: lease.id, mode: 'exclusive', token: lease.fence.token })
    assert.ok(heldForMs >= 20_000 && heldForMs <= 25_500)
  })

  test('T8 paused, when our own timer came late', async () => {
    const { ours, clock, one, eventsOf } = setStage()
    await using _ = await ours.acquire('n', { ttlMs: 60_000 })
    await clock.advance(120_000)
    assert.ok(eventsOf('renewed').length >= 5)
    assert.deepEqual(eventsOf('paused'), [], 'while its timers come in time')
    clock.block(33_000)
    await clock.advance(0)
    const { lateByMs, ...rest } = one('paused')
    assert.deepEqual(rest, { backend: 'memory', namespace: 'default' })
    assert.ok(lateByMs >= 11_000 && lateByMs <= 33_000, `the next was due within 22,000: ${lateByMs}`)
  })

  test('T34 dual-owner-suspected and lost, when the engine says another', async () => {
    const { ours, other, clock, engine, one, about } = setStage()
    const lease = await ours.acquire('n')
    const { id, fence } = lease
    engine.deleteName('default', 'n')
    await using _ = await other.acquire('n')
    await clock.advance(5_600)
    const { remainingMs, ...suspected } = one('dual-owner-suspected')
    assert.deepEqual(suspected, {
      ...about,
      id,
      mode: 'exclusive' as const,
      token: fence.token,
      reason: 'taken-over',
    })
    assert.ok(remainingMs > 0)
    assert.equal(one('lost').reason, 'taken-over')
    assert.equal(lease.state, 'lost')
  })

  test('dropped, when it cannot be released any more', async () => {
    const { ours, clock, one, eventsOf, about } = setStage()
    let handle: { id: string } | undefined = await ours.acquire('n')
    const { id } = handle
    handle = undefined
    // It is watched from its first renewal on.
    await clock.advance(6_000)
    for (let rounds = 0; rounds < 50 && eventsOf('dropped').length === 0; rounds++) {
      globalThis.gc?.()
      await clock.settle()
    }
    const { token, ...rest } = one('dropped')
    assert.deepEqual(rest, { ...about, id, mode: 'exclusive' })
    assert.equal(typeof token, 'bigint')
    assert.equal(one('lost').reason, 'dropped')
    assert.ok(await ours.tryAcquire('n'), 'it is free again')
  })
})

describe('events of ending', () => {
  type Stage = ReturnType<typeof setStage>
  const ways: Record<string, (stage: Stage) => Promise<unknown>> = {
    'through the handle': async ({ ours, clock }) => {
      const lease = await ours.acquire('n')
      await clock.advance(300)
      assert.equal(await lease.release(), 'released')
    },
    'by await using': async ({ ours, clock }) => {
      await using _ = await ours.acquire('n')
      await clock.advance(300)
    },
    'by withLease': ({ ours, clock }) => ours.withLease('n', () => clock.advance(300)),
    'by withLease whose body throws': ({ ours, clock }) =>
      assert.rejects(
        ours.withLease('n', async () => {
          await clock.advance(300)
          throw new Error('body')
        }),
        /body/,
      ),
    'with its set': async ({ ours, clock }) => {
      const leases = await ours.acquireAll(['n'])
      await clock.advance(300)
      await leases.release()
    },
    'as a permit': async ({ ours, clock }) => {
      const permit = await ours.acquirePermits('n', { capacity: 2 })
      await clock.advance(300)
      await permit.release()
    },
  }

  test.each(Object.keys(ways))('T60 released %s', async (way) => {
    const stage = setStage()
    await ways[way]?.(stage)
    const { id, token, ...rest } = stage.one('released')
    assert.deepEqual(rest, { ...stage.about, mode: rest.mode, heldForMs: 300, outcome: 'released' })
    assert.deepEqual({ id, token }, { id: stage.one('acquired').id, token: stage.one('acquired').token })
    assert.deepEqual(stage.eventsOf('lost'), [])
  })

  test('T60 released is said once, however often it is called', async () => {
    const { ours, one } = setStage()
    const lease = await ours.acquire('n')
    await Promise.all([lease.release(), lease.release()])
    await lease.release()
    one('released')
  })

  test('release-failed, and released with an unknown outcome', async () => {
    const { ours, failing, one, about } = setStage()
    const lease = await ours.acquire('n')
    failing.add('release')
    assert.equal(await lease.release(), 'unknown')
    const { error, ...rest } = one('release-failed')
    assert.deepEqual(rest, { ...about, id: lease.id, mode: 'exclusive', token: lease.fence.token })
    assert.match(String(error), /release failed/)
    assert.equal(one('released').outcome, 'unknown')
  })

  test('close-failed says what is left, and for how long', async () => {
    const { ours, failing, one } = setStage()
    await ours.acquire('n')
    failing.add('close')
    await ours.close()
    const { error, ...rest } = one('close-failed')
    const { expirySlackMs } = ours.info
    assert.deepEqual(rest, {
      backend: 'memory',
      namespace: 'default',
      left: 1,
      expireWithinMs: 15_000 + expirySlackMs(15_000),
    })
    assert.match(String(error), /close failed/)
  })

  test('lock-order has the orders that can deadlock', async () => {
    const { ours, one, about } = setStage()
    const watched = watchLockOrder(ours)
    await watched.withLease('a', () => watched.withLease('b', () => {}))
    await watched.withLease('b', () => watched.withLease('a', () => {}))
    const { orders, ...rest } = one('lock-order')
    assert.deepEqual({ ...rest, name: 'n' }, about)
    assert.deepEqual(
      orders.map(({ held, asked }) => [held, asked]),
      [
        ['a', 'b'],
        ['b', 'a'],
      ],
    )
  })

  test('force-released says who did it and why, and the holder learns it', async () => {
    const { ours, clock, one, about } = setStage()
    const lease = await ours.acquire('n')
    assert.equal(await ours.forceRelease('n', { all: true, reason: 'stuck' }), 1)
    assert.deepEqual(one('force-released'), { ...about, reason: 'stuck', count: 1 })
    await clock.advance(5_600)
    assert.equal(one('lost').reason, 'force-released')
    assert.equal(lease.state, 'lost')
  })

  test('lost says for how long it was held', async () => {
    const { ours, clock, one, about } = setStage()
    const lease = await ours.acquire('n', { maxHoldMs: 2_000 })
    await clock.advance(2_000)
    const { id, fence } = lease
    assert.deepEqual(one('lost'), {
      ...about,
      id,
      mode: 'exclusive' as const,
      token: fence.token,
      reason: 'max-hold',
      heldForMs: 2_000,
    })
  })
})

describe('events of guards', () => {
  test('guard-accepted, and guard-refused with what the guard has seen', async () => {
    const { ours, one, eventsOf } = setStage()
    const guard = memoryGuard({ issuers: [ours.info.issuer] })
    const stale = await ours.acquire('n')
    await stale.release()
    await using current = await ours.acquire('n')
    await guard.run(current, async () => {})
    assert.equal(one('guard-accepted').name, 'n')
    assert.equal(one('guard-accepted').token, current.fence.token)
    await assert.rejects(
      guard.run(stale.fence, async () => {}),
      { code: 'FENCE_STALE' },
    )
    const { guard: _, ...refused } = one('guard-refused')
    const { token } = stale.fence
    assert.deepEqual(refused, { name: 'n', token, reason: 'stale', highest: current.fence.token })
    assert.equal(eventsOf('guard-accepted').length, 1)
  })
})

describe('events without a lock', () => {
  test('idempotent tells how each call ended, and nothing of its key', async () => {
    const { eventsOf } = setStage()
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-events-'))
    const path = join(folder, 'keys.db')
    onTestFinished(() => rmSync(folder, { recursive: true }))
    await using once = sqliteIdempotent({ path })
    const request = { scope: 'payments', key: 'secret', payload: 1 }
    await once(request, () => 'done')
    await once(request, () => assert.fail('done already'))
    await assert.rejects(
      once({ ...request, payload: 2 }, () => {}),
      { code: 'KEY_REUSED' },
    )
    await assert.rejects(
      once({ ...request, key: 'b' }, () => Promise.reject(new Error('planted'))),
      /planted/,
    )
    const slow = { ...request, key: 'c' }
    await once(slow, async () => {
      await assert.rejects(
        once(slow, () => {}, { waitMs: 0 }),
        { code: 'ACQUIRE_TIMEOUT' },
      )
    })
    const paused = { ...request, key: 'd' }
    const overtaken = once(paused, async () => {
      using operator = new DatabaseSync(path)
      operator.exec(`UPDATE holdfast_idempotency SET lease_until_ms = 0 WHERE key = 'd'`)
      await once(paused, () => 2)
    })
    await assert.rejects(overtaken, { code: 'LEASE_LOST', reason: 'taken-over' })
    const told = eventsOf('idempotent')
    assert.deepEqual(
      told.map(({ outcome }) => outcome),
      ['done', 'replayed', 'key-reused', 'failed', 'timed-out', 'done', 'done', 'taken-over'],
    )
    for (const event of told) {
      assert.deepEqual([event.name, event.tookMs >= 0], ['payments', true])
      assert.doesNotMatch(JSON.stringify(event), /secret/)
    }
  })

  test('optimistic tells how many attempts it took', async () => {
    const { eventsOf } = setStage()
    await optimisticUpdate(
      () => 1,
      (_, attempt) => attempt === 2,
      { jitterMs: 0 },
    )
    await assert.rejects(
      optimisticUpdate(
        () => 1,
        () => false,
        { retries: 2, jitterMs: 0 },
      ),
      { code: 'CONFLICT' },
    )
    assert.deepEqual(eventsOf('optimistic'), [
      { outcome: 'updated', attempts: 2 },
      { outcome: 'conflict', attempts: 3 },
    ])
  })
})

describe('events of recipes', () => {
  test('tick has its outcome, how late it began and how long it ran', async () => {
    const { ours, clock, eventsOf } = setStage()
    const due = clock.wallMs()
    await clock.advance(1_500)
    const ticks = tickRunner(ours, { name: 'nightly', onError: () => {} }, async ({ tick }) => {
      await clock.advance(700)
      if (tick.scheduledAt.getTime() > due) throw new Error('planted')
    })
    assert.equal(await ticks.run(due), 'ran')
    assert.equal(await ticks.run(due), 'left')
    await clock.advance(300)
    assert.equal(await ticks.run(due + 2_400), 'failed')
    const about = { backend: 'memory', namespace: 'default', name: 'nightly' }
    const at = (ms: number) => new Date(ms).toISOString()
    assert.deepEqual(eventsOf('tick'), [
      { ...about, outcome: 'ran', tick: at(due), lateByMs: 1_500, tookMs: 700 },
      { ...about, outcome: 'left', tick: null, lateByMs: 0, tookMs: 0 },
      { ...about, outcome: 'failed', tick: at(due + 2_400), lateByMs: 100, tookMs: 700 },
    ])
  })

  test('a tick whose lease was lost has ended in an error', async () => {
    const { ours, clock, failing, eventsOf } = setStage()
    const due = clock.wallMs()
    const ticks = tickRunner(ours, { name: 'nightly', onError: () => {} }, () => clock.advance(60_000))
    failing.add('keepAlive')
    const running = ticks.run(due)
    await clock.advance(120_000)
    failing.clear()
    await clock.advance(120_000)
    assert.equal(await running, 'left')
    assert.deepEqual(
      eventsOf('tick').map(({ outcome, tick }) => [outcome, tick]),
      [['error', new Date(due).toISOString()]],
    )
  })

  test('leadership tells its beginning, and its end with the reason', async () => {
    const { ours, clock, engine, eventsOf } = setStage()
    const ends = () => eventsOf('leadership').flatMap(({ reason }) => reason ?? [])
    const candidate = election(ours, 'n')
    const leadership = await candidate.campaign()
    const { id } = leadership.lease
    await leadership.resign()
    await leadership.resign()
    const about = { backend: 'memory', namespace: 'default', name: 'n', holder: ours.holder, id }
    assert.deepEqual(eventsOf('leadership'), [
      { ...about, phase: 'began', reason: null },
      { ...about, phase: 'ended', reason: 'resigned' },
    ])
    await candidate.campaign()
    engine.deleteName('default', 'n')
    await clock.advance(6_000)
    assert.deepEqual(ends(), ['resigned', 'deleted'])
    const stop = new AbortController()
    const terms = [
      () => {},
      (term: Term) => term.resign(),
      () => engine.deleteName('default', 'n'),
      () => stop.abort(),
    ]
    const work = async (term: Term) => {
      terms.shift()?.(term)
      await clock.advance(6_000)
    }
    await candidate.serve(work, { signal: stop.signal })
    await assert.rejects(
      candidate.serve(() => Promise.reject(new Error('planted'))),
      /planted/,
    )
    assert.deepEqual(ends().slice(2), ['work-ended', 'resigned', 'deleted', 'stopped', 'work-failed'])
  })
})

describe('channels', () => {
  test('every kind is a diagnostics channel of its own', () => {
    for (const kind of kinds) {
      const seen: unknown[] = []
      const listener = (event: unknown) => void seen.push(event)
      assert.equal(hasListeners(kind), false)
      subscribe(`holdfast:${kind}`, listener)
      assert.equal(hasListeners(kind), true)
      const event = { kind }
      emit(kind, event as never)
      unsubscribe(`holdfast:${kind}`, listener)
      emit(kind, event as never)
      assert.deepEqual(seen, [event])
      assert.equal(seen[0], event)
    }
  })

  test('a listener that stops hears nothing more, and others go on', () => {
    const heard: string[] = []
    const stopOne = onEvent('busy', () => heard.push('one'))
    const stopTwo = onEvent('busy', () => heard.push('two'))
    const event = {
      backend: 'b',
      namespace: 'n',
      name: 'n',
      holder: 'h',
      attemptId: 'a',
      mode: 'exclusive',
      waitedMs: 0,
    } as const
    emit('busy', event)
    stopOne()
    stopOne()
    emit('busy', event)
    stopTwo()
    emit('busy', event)
    assert.deepEqual(heard, ['one', 'two', 'two'])
    assert.equal(hasListeners('busy'), false)
  })

  test('the tests above have made every kind be emitted', () => {
    // Jobs are about an engine that is a server; their tests are beside it.
    assert.deepEqual([...setStage.emitted, 'job'].sort(), [...kinds].sort())
  })

  test('docs/reference/events.md lists every kind, and nothing else', () => {
    assert.deepEqual([...documentedFields.keys()], kinds)
  })

  test('docs/reference/events.md lists every code of a warning, and nothing else', () => {
    const codes: Record<keyof WarningCodes, true> = {
      HOLDFAST_REDIS_EVICTION: true,
      HOLDFAST_REDIS_PERSISTENCE: true,
      HOLDFAST_REDIS_UNCHECKED: true,
      HOLDFAST_REDIS_CLOCK: true,
      HOLDFAST_REDLOCK_NO_VOTE: true,
      HOLDFAST_HTTP: true,
      HOLDFAST_PARTITIONS: true,
      HOLDFAST_SCHEDULE: true,
      HOLDFAST_PROXY: true,
      HOLDFAST_TELEMETRY: true,
      HOLDFAST_DROPPED: true,
      HOLDFAST_TTL: true,
    }
    assert.deepEqual(
      tableRows('events.md', 'Warnings').map(({ code }) => code),
      Object.keys(codes),
    )
  })
})

describe('warnings', () => {
  const ofProcess: (Error & { code?: string; detail?: string })[] = []
  const onWarning = (warning: Error) => void ofProcess.push(warning)
  const about = { backend: 'redis', namespace: 'n', code: 'HOLDFAST_REDIS_EVICTION' } as const
  /** Node tells of a warning in the next tick. */
  const nextTurn = () => new Promise((resolve) => setImmediate(resolve))
  beforeEach(() => {
    ofProcess.length = 0
    process.on('warning', onWarning)
  })
  afterEach(() => void process.off('warning', onWarning))

  test('with a listener: it is told each time, and the process has no warning', async () => {
    const heard: string[] = []
    const stop = onEvent('warning', ({ code, warning }) => heard.push(`${code} ${warning}`))
    for (const warning of ['one', 'two']) warn({ ...about, warning })
    stop()
    await nextTurn()
    assert.deepEqual(heard, ['HOLDFAST_REDIS_EVICTION one', 'HOLDFAST_REDIS_EVICTION two'])
    assert.deepEqual(ofProcess, [])
  })

  test('without a listener: the process has one warning for each code, which says how to silence it', async () => {
    for (const warning of ['one', 'two']) {
      warn({ ...about, warning })
      warn({ ...about, code: 'HOLDFAST_REDIS_CLOCK', warning })
    }
    await nextTurn()
    assert.deepEqual(
      ofProcess.map(({ code, message }) => [code, message]),
      [
        ['HOLDFAST_REDIS_EVICTION', 'redis: one.'],
        ['HOLDFAST_REDIS_CLOCK', 'redis: one.'],
      ],
    )
    assert.match(ofProcess[0]?.detail ?? '', /--disable-warning=HOLDFAST_REDIS_EVICTION/)
  })
})
