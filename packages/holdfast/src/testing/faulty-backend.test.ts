import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { type NamingSession, namingGrants } from '../../test/naming-grants.ts'
import { callWith } from '../base/aborting.ts'
import { isHoldfastError } from '../base/errors.ts'
import { newAttempt } from '../base/ids.ts'
import { MemoryEngine } from '../engines/memory/engine.ts'
import { memory } from '../engines/memory/index.ts'
import { listAll } from '../kit/backend-kit.ts'
import { type AcquireRequest, type Backend, LOCK_CAPACITY } from '../spi.ts'
import { operatorCall } from './conformance/operator.ts'
import { enqueued } from './enqueued.ts'
import { createFakeClock } from './fake-clock.ts'
import { callKinds, type Fault, randomFaults } from './faults.ts'
import { faultyBackend } from './faulty-backend.ts'
import { seededRandom } from './seeded-random.ts'
import { weakenWaiting } from './weaken-waiting.ts'

const TTL_MS = 10_000
const random = seededRandom(1)
const call = () => callWith()

function exclusive(name: string): AcquireRequest {
  const attempt = newAttempt(random)
  return { name, attempt, mode: 'exclusive', weight: LOCK_CAPACITY, capacity: LOCK_CAPACITY, lockDelayMs: 0 }
}

async function setUp(plan?: Parameters<typeof faultyBackend>[1]) {
  const clock = createFakeClock()
  const engine = new MemoryEngine({ clock })
  const faults = faultyBackend(memory({ engine, random }), plan)
  const session = await open(faults)
  const holders = (name: string) => engine.inspect('default', name)?.holders.length ?? 0
  const waiters = (name: string) => engine.inspect('default', name)?.waiters.length ?? 0
  return { clock, engine, faults, session, holders, waiters }
}

async function open(backend: Backend<'fenced'>): Promise<NamingSession<'fenced'>> {
  return namingGrants(await backend.openSession({ id: random.id(), ttlMs: TTL_MS, holder: 'tester' }, call()))
}

function enqueue(session: NamingSession<'fenced'>, request: AcquireRequest, on = call()) {
  return enqueued(session, request, on)
}

function unavailable(outcome: 'not-applied' | 'unknown') {
  return (error: unknown) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === outcome
}

/** The state of a promise so far. */
function observe<T>(promise: Promise<T>) {
  const seen: { state: 'pending' | 'resolved' | 'rejected'; value?: T; error?: unknown } = {
    state: 'pending',
  }
  promise.then(
    (value) => Object.assign(seen, { state: 'resolved', value }),
    (error: unknown) => Object.assign(seen, { state: 'rejected', error }),
  )
  return seen
}

describe('a faulty backend', () => {
  test('without faults it changes nothing and keeps a log', async () => {
    const { faults, session, engine } = await setUp()
    const request = exclusive('n')
    assert.equal((await session.tryAcquire(request, call())).kind, 'granted')
    assert.equal(await session.setData(request, 'note', call()), 'stored')
    assert.equal((await session.keepAlive({ held: [request], waiting: [] }, call())).kind, 'alive')
    assert.equal((await faults.inspect('n', call()))?.data, 'note')
    assert.equal((await listAll(faults, '', call())).length, 1)
    assert.equal(await session.release(request, { keepForMs: 0 }, call()), 'released')
    assert.equal(await faults.forget('n', 'note', operatorCall()), 'forgotten')
    assert.deepEqual(
      faults.log.map(({ kind, name, outcome, landed, fault }) => [kind, name, outcome, landed, fault]),
      [
        ['openSession', null, 'answered', 1, null],
        ['tryAcquire', 'n', 'answered', 1, null],
        ['setData', 'n', 'answered', 1, null],
        ['keepAlive', null, 'answered', 1, null],
        ['inspect', 'n', 'answered', 1, null],
        ['list', null, 'answered', 1, null],
        ['release', 'n', 'answered', 1, null],
        ['forget', 'n', 'answered', 1, null],
      ],
    )
    assert.equal(faults.count('release'), 1)
    assert.equal(faults.count(), 8)
    await session.close(call())
    assert.equal(engine.stats().sessions, 0)
  })

  test('has exactly the optional methods of what it wraps', async () => {
    const { faults, session } = await setUp()
    assert.deepEqual([faults.watch !== undefined, session.inner.enqueue !== undefined], [true, true])
    const { watch: _, ...blind } = weakenWaiting(memory())
    assert.equal('watch' in faultyBackend(blind), false)
  })

  test('error-before: nothing happens, and the caller is told', async () => {
    const { faults, session, holders } = await setUp()
    faults.next('tryAcquire', { kind: 'error-before' })
    await assert.rejects(session.tryAcquire(exclusive('n'), call()), unavailable('not-applied'))
    const error = new Error('ECONNREFUSED')
    faults.next('tryAcquire', { kind: 'error-before', error })
    await assert.rejects(session.tryAcquire(exclusive('n'), call()), (thrown) => thrown === error)
    assert.equal(holders('n'), 0)
    assert.deepEqual(faults.log.at(-1), {
      ...faults.log.at(-1),
      fault: 'error-before',
      landed: 0,
      outcome: 'unknown',
    })
  })

  test('error-after: it happens, and the caller is told that the outcome is unknown', async () => {
    const { faults, session, holders, waiters } = await setUp()
    faults.next('tryAcquire', { kind: 'error-after' })
    await assert.rejects(session.tryAcquire(exclusive('n'), call()), unavailable('unknown'))
    assert.equal(holders('n'), 1)
    faults.next('enqueue', { kind: 'error-after' })
    await assert.rejects(enqueue(session, exclusive('n')), unavailable('unknown'))
    assert.equal(waiters('n'), 1)
  })

  test('lost-request: nothing happens, and no answer comes until the caller gives up', async () => {
    const { faults, session, holders, clock } = await setUp()
    const caller = new AbortController()
    faults.next('tryAcquire', { kind: 'lost-request' })
    const answer = observe(session.tryAcquire(exclusive('n'), callWith(caller.signal)))
    await clock.advance(60_000)
    assert.equal(answer.state, 'pending')
    caller.abort()
    await clock.settle()
    assert.ok(unavailable('unknown')(answer.error))
    assert.equal(holders('n'), 0)
  })

  test('lost-reply: it happens, and no answer comes until the caller gives up', async () => {
    const { faults, session, holders, clock } = await setUp()
    const caller = new AbortController()
    faults.next('tryAcquire', { kind: 'lost-reply' })
    const answer = observe(session.tryAcquire(exclusive('n'), callWith(caller.signal)))
    await clock.settle()
    assert.deepEqual([answer.state, holders('n')], ['pending', 1])
    caller.abort()
    await clock.settle()
    assert.ok(unavailable('unknown')(answer.error))
    assert.deepEqual(faults.log.at(-1), { ...faults.log.at(-1), landed: 1, outcome: 'unknown' })
  })

  test('T1 late-reply: it happens now, counts from now, and is answered later', async () => {
    const { faults, session, clock } = await setUp()
    const sentMs = clock.monotonicMs()
    faults.next('keepAlive', { kind: 'late-reply', ms: 700 })
    const answer = observe(session.keepAlive({ held: [], waiting: [] }, call()))
    await clock.advance(699)
    assert.equal(answer.state, 'pending')
    await clock.advance(1)
    assert.ok(answer.value?.kind === 'alive')
    assert.equal(answer.value.since.monotonicMs, sentMs)
  })

  test('T15 late-landing: the caller is told now that the outcome is unknown, and it happens later', async () => {
    const { faults, session, holders, clock } = await setUp()
    faults.next('tryAcquire', { kind: 'late-landing', ms: 300 })
    await assert.rejects(session.tryAcquire(exclusive('n'), call()), unavailable('unknown'))
    await clock.advance(299)
    assert.equal(holders('n'), 0)
    await clock.advance(1)
    assert.equal(holders('n'), 1)
  })

  test('T73 an attempt that was abandoned does not land late', async () => {
    const { faults, session, holders, clock } = await setUp()
    const request = exclusive('n')
    faults.next('tryAcquire', { kind: 'late-landing', ms: 300 })
    await assert.rejects(session.tryAcquire(request, call()), unavailable('unknown'))
    await session.abandon(request, call())
    await clock.advance(300)
    assert.equal(faults.log.find((each) => each.kind === 'tryAcquire')?.landed, 1)
    assert.equal(holders('n'), 0)
  })

  test('T16 frozen: nothing arrives until it is unfrozen, then everything does, in its order', async () => {
    const { faults, session, holders, clock } = await setUp()
    faults.freeze()
    const caller = new AbortController()
    const [first, second] = [exclusive('n'), exclusive('n')]
    const answers = [
      observe(session.tryAcquire(first, callWith(caller.signal))),
      observe(session.tryAcquire(second, call())),
    ] as const
    await clock.advance(5_000)
    assert.deepEqual([answers[0].state, answers[1].state, holders('n')], ['pending', 'pending', 0])
    caller.abort()
    await clock.settle()
    assert.ok(unavailable('unknown')(answers[0].error))
    faults.unfreeze()
    await clock.settle()
    // The first caller has gone, but its request was in flight.
    assert.equal(answers[1].value?.kind, 'busy')
    assert.equal(holders('n'), 1)
  })

  test('frozen: answers are held too, also the grant of a waiter', async () => {
    const { faults, session, clock, engine } = await setUp()
    const other = await open(memory({ engine }))
    const request = exclusive('n')
    await other.tryAcquire(request, call())
    const turn = observe(enqueue(session, exclusive('n')))
    faults.freeze()
    await other.release(request, { keepForMs: 0 }, call())
    await clock.advance(100)
    assert.equal(turn.state, 'pending')
    faults.unfreeze()
    await clock.settle()
    assert.equal(turn.value?.kind, 'granted')
  })

  test('a single call can be frozen while others pass', async () => {
    const { faults, session, clock } = await setUp()
    faults.next('tryAcquire', { kind: 'frozen' })
    const held = observe(session.tryAcquire(exclusive('n'), call()))
    assert.equal((await session.tryAcquire(exclusive('n'), call())).kind, 'granted')
    faults.unfreeze()
    await clock.settle()
    assert.equal(held.value?.kind, 'busy')
  })

  test('duplicate: the request arrives twice, and the first answer counts', async () => {
    const { faults, session } = await setUp()
    const request = exclusive('n')
    faults.next('tryAcquire', { kind: 'duplicate' })
    assert.equal((await session.tryAcquire(request, call())).kind, 'granted')
    assert.equal(faults.log.at(-1)?.landed, 2)
    faults.next('release', { kind: 'duplicate' })
    assert.equal(await session.release(request, { keepForMs: 0 }, call()), 'released')
  })

  test('duplicate: the second may come later, and meets what has happened since', async () => {
    const { faults, session, holders, clock } = await setUp()
    const request = exclusive('n')
    faults.next('tryAcquire', { kind: 'duplicate', ms: 50 })
    await session.tryAcquire(request, call())
    await session.abandon(request, call())
    await clock.advance(50)
    assert.deepEqual([faults.log[1]?.landed, holders('n')], [2, 0])
  })

  test('cutOff: what is in flight ends as unknown, what is new is refused, until restored', async () => {
    const { faults, session, clock, waiters } = await setUp()
    await session.tryAcquire(exclusive('n'), call())
    const turn = observe(enqueue(session, exclusive('n')))
    faults.cutOff()
    await clock.settle()
    assert.ok(unavailable('unknown')(turn.error))
    assert.equal(waiters('n'), 1)
    await assert.rejects(faults.inspect('n', call()), unavailable('not-applied'))
    faults.restore()
    assert.equal((await faults.inspect('n', call()))?.holders.length, 1)
  })

  test('scripted faults come before the plan, in their order, each for one call of its kind', async () => {
    const { faults, session } = await setUp({
      plan: ({ kind, name }) => (kind === 'inspect' && name === 'planned' ? { kind: 'error-before' } : null),
    })
    faults.next('inspect', { kind: 'error-before', error: new Error('first') })
    faults.next('inspect', { kind: 'error-before', error: new Error('second') })
    assert.equal((await session.tryAcquire(exclusive('n'), call())).kind, 'granted')
    await assert.rejects(faults.inspect('n', call()), /first/)
    await assert.rejects(faults.inspect('planned', call()), /second/)
    await assert.rejects(faults.inspect('planned', call()), unavailable('not-applied'))
    assert.notEqual(await faults.inspect('n', call()), null)
  })

  test('calm: what was announced is forgotten, what was held goes on, what was cut is restored', async () => {
    const { faults, clock } = await setUp()
    faults.next('inspect', { kind: 'error-before' })
    faults.freeze()
    const held = observe(listAll(faults, '', call()))
    faults.calm()
    await clock.settle()
    assert.deepEqual(held.value, [])
    faults.cutOff()
    faults.calm()
    assert.equal(await faults.inspect('n', call()), null)
  })

  test('random faults repeat with their seed, hit the share that was asked for, and keep to their kinds', () => {
    const draw = (seed: number): (Fault | null)[] => {
      const plan = randomFaults({ seed, rate: 0.2, kinds: ['lost-reply', 'late-reply'], maxLateMs: 40 })
      return Array.from({ length: 2_000 }, (_, number) => plan({ number, kind: 'release', name: 'n' }))
    }
    assert.deepEqual(draw(7), draw(7))
    assert.notDeepEqual(draw(7), draw(8))
    const faults = draw(7).filter((fault) => fault !== null)
    assert.ok(faults.length > 300 && faults.length < 500, `${faults.length} of 2,000`)
    assert.deepEqual(new Set(faults.map(({ kind }) => kind)), new Set(['lost-reply', 'late-reply']))
    assert.ok(faults.every((fault) => !('ms' in fault) || (fault.ms ?? 0) <= 40))
    const onlyReleases = randomFaults({ seed: 1, rate: 1, calls: ['release'] })
    const hit = callKinds.filter((kind) => onlyReleases({ number: 1, kind, name: null }) !== null)
    assert.deepEqual(hit, ['release'])
  })

  test('when it is disposed of, nothing stays pending and no timer stays armed', async () => {
    const { faults, session, clock } = await setUp()
    faults.next('inspect', { kind: 'lost-reply' })
    faults.next('list', { kind: 'late-reply', ms: 500 })
    faults.next('tryAcquire', { kind: 'late-landing', ms: 500 })
    const pending: Promise<unknown>[] = [faults.inspect('n', call()), listAll(faults, '', call())]
    await assert.rejects(session.tryAcquire(exclusive('n'), call()))
    faults.freeze()
    pending.push(faults.forget('n', 'note', operatorCall()))
    const settled = Promise.allSettled(pending)
    await faults[Symbol.asyncDispose]()
    for (const each of await settled)
      assert.ok(each.status === 'rejected' && isHoldfastError(each.reason, 'CLOSED'))
    await assert.rejects(faults.inspect('n', call()), (error) => isHoldfastError(error, 'CLOSED'))
    assert.equal(clock.pendingTimers, 0)
  })
})
