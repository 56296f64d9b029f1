/** Spans with the real SDK of OpenTelemetry. */
import assert from 'node:assert/strict'
import { context, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { createRig } from '../../test/rig.ts'
import { sleep } from '../base/clock.ts'
import { hasListeners } from '../base/events.ts'
import type { Locker } from '../base/types.ts'
import { reentrant } from '../recipes/reentrant.ts'
import { faultyBackend } from '../testing/faulty-backend.ts'
import { type TraceOptions, traceLocker } from './spans.ts'

beforeAll(() => void context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()))
afterAll(() => context.disable())

function stage() {
  const exporter = new InMemorySpanExporter()
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const tracer = provider.getTracer('test')
  const rig = createRig()
  const failing = new Set<string>()
  const wrap: NonNullable<Parameters<typeof rig.locker>[0]>['wrap'] = (backend) =>
    faultyBackend(backend, {
      plan: ({ kind }) => (failing.has(kind) ? { kind: 'error-before', error: new Error('planted') } : null),
    })
  const raw = rig.locker({ wrap, holder: 'ours' })
  const traced = traceLocker<Locker<'fenced'>>(raw, { tracer })
  const spans = () => exporter.getFinishedSpans()
  const named = (name: string) => spans().filter((span) => span.name === name)
  const one = (name: string): ReadableSpan => {
    const [span, ...more] = named(name)
    assert.ok(span !== undefined && more.length === 0, `one ${name} of ${spans().map((each) => each.name)}`)
    return span
  }
  /** Runs it in a span of the user's. */
  const request = <T>(name: string, run: () => Promise<T>): Promise<T> =>
    tracer.startActiveSpan(name, async (span) => {
      try {
        return await run()
      } finally {
        span.end()
      }
    })
  return { ...rig, failing, tracer, raw, traced, spans, named, one, request }
}

const parentOf = (span: ReadableSpan) => span.parentSpanContext?.spanId
const idOf = (span: ReadableSpan) => span.spanContext().spanId

test('the user’s span in the body is a child of the hold span, also of two at once, one of which had to wait', async () => {
  const { traced, tracer, clock, one, named, request } = stage()
  const work = (name: string) =>
    request(`request ${name}`, () =>
      traced.withLease('x', async () => {
        await sleep(clock, 500)
        tracer.startSpan(`work ${name}`).end()
      }),
    )
  const both = Promise.all([work('a'), work('b')])
  await clock.advance(2_000)
  await both
  const holds = named('holdfast hold')
  for (const name of ['a', 'b']) {
    const hold = holds.find((span) => idOf(span) === parentOf(one(`work ${name}`)))
    assert.ok(hold !== undefined, 'the parent is a hold')
    assert.equal(parentOf(hold), idOf(one(`request ${name}`)))
  }
  assert.equal(holds.length, 2)
})

test('wait and hold are siblings below the caller’s span, with what is known of the lease', async () => {
  const { traced, one, request } = stage()
  let token = 0n
  const result = await request('request', () =>
    traced.withLease('x', { mode: 'shared' }, async (lease) => {
      token = lease.fence.token
      return 7
    }),
  )
  assert.equal(result, 7)
  const [outer, acquire, hold] = [one('request'), one('holdfast acquire'), one('holdfast hold')]
  assert.deepEqual([parentOf(acquire), parentOf(hold)], [idOf(outer), idOf(outer)])
  const about = {
    'holdfast.backend': 'memory',
    'holdfast.namespace': 'default',
    'holdfast.name': 'x',
    'holdfast.mode': 'shared',
    'holdfast.token': token.toString(),
  }
  assert.deepEqual(acquire.attributes, { ...about, 'holdfast.outcome': 'granted' })
  assert.deepEqual(hold.attributes, about)
  assert.deepEqual([acquire.status.code, hold.status.code], [SpanStatusCode.UNSET, SpanStatusCode.UNSET])
})

test('each way to acquire has a span with its outcome', async () => {
  const { traced, named, clock, failing } = stage()
  const lease = await traced.acquire('a')
  assert.equal(await traced.tryAcquire('a'), null)
  const late = assert.rejects(traced.acquire('a', { waitMs: 500 }), { code: 'ACQUIRE_TIMEOUT' })
  await assert.rejects(traced.acquire('a', { maxWaiters: 0 }), { code: 'QUEUE_FULL' })
  const stop = new AbortController()
  const cancelled = assert.rejects(traced.acquire('a', { signal: stop.signal }), /enough/)
  stop.abort(new Error('enough'))
  await cancelled
  await clock.advance(1_000)
  await late
  await assert.rejects(traced.acquire('', {}), { code: 'INVALID_ARGUMENT' })
  const stages = named('holdfast acquire').map(({ attributes }) => attributes['holdfast.outcome'])
  assert.deepEqual(stages, ['granted', 'busy', 'queue-full', 'cancelled', 'timed-out', 'failed'])
  const [granted, busy, full] = named('holdfast acquire').map(({ status }) => status)
  assert.deepEqual([granted?.code, busy?.code], [SpanStatusCode.UNSET, SpanStatusCode.UNSET])
  assert.equal(full?.code, SpanStatusCode.ERROR)
  assert.match(full?.message ?? '', /queue/i)
  assert.deepEqual(named('holdfast hold'), [], 'a lease of acquire has no hold span: its body is not ours')
  await traced.acquirePermits('p', { capacity: 2 })
  await traced.tryAcquirePermits('p', { capacity: 2 })
  await traced.acquireAll(['d', 'c'])
  const last = named('holdfast acquire').slice(-3)
  assert.deepEqual(
    last.map(({ attributes }) => [attributes['holdfast.name'], attributes['holdfast.mode']]),
    [
      ['p', 'permits'],
      ['p', 'permits'],
      [['d', 'c'], 'exclusive'],
    ],
  )
  assert.equal(failing.size, 0)
  await lease.release()
})

test('jeopardy is an event of the hold span, and a loss its error, in its own trace', async () => {
  const { traced, one, named, clock, failing, request, tracer } = stage()
  const heard: number[] = []
  const running = request('first', () =>
    traced.withLease('x', { onJeopardy: (ms) => heard.push(ms) }, async (lease) => {
      await new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
      // Whatever is active when the loss is found, the callbacks run in none of it.
      tracer.startSpan('after the loss').end()
    }),
  )
  await clock.settle()
  failing.add('keepAlive')
  // Another request is at it while the timer finds the loss.
  const outcome = assert.rejects(running, { code: 'LEASE_LOST', reason: 'unreachable' })
  await request('second', () => clock.advance(20_000))
  await outcome
  const hold = one('holdfast hold')
  assert.deepEqual(
    hold.events.map(({ name }) => name),
    ['jeopardy'],
  )
  assert.equal(heard.length, 1, 'the caller’s own callback is called as well')
  assert.equal(hold.status.code, SpanStatusCode.ERROR)
  assert.match(hold.status.message ?? '', /unreachable/)
  assert.equal(hold.attributes['holdfast.outcome'], 'unreachable')
  assert.equal(hold.spanContext().traceId, one('first').spanContext().traceId)
  assert.equal(one('after the loss').spanContext().traceId, one('first').spanContext().traceId)
  const second = one('second')
  const inSecond = [...named('holdfast acquire'), hold].filter(
    (span) => span.spanContext().traceId === second.spanContext().traceId,
  )
  assert.deepEqual(inSecond, [])
})

describe('with re-entry', () => {
  type Wrap = (raw: Locker<'fenced'>, options: TraceOptions) => Locker<'fenced'>
  const wrapped: readonly (readonly [string, Wrap, number])[] = [
    ['outside', (raw, options) => traceLocker(reentrant(raw), options), 2],
    ['inside', (raw, options) => reentrant(traceLocker(raw, options)), 1],
  ]
  test.for(wrapped)(
    'a span wrapper that is %s re-enters, and tells jeopardy to each body',
    async ([, wrap, spans]) => {
      const { raw, tracer, named, clock, failing } = stage()
      const locker = wrap(raw, { tracer })
      const running = locker.withLease('x', async (outer) =>
        locker.withLease('x', async (inner) => {
          assert.equal(inner.fence.token, outer.fence.token)
          await (await locker.acquire('x')).release()
          await locker.withLeases(['x'], () => {})
          failing.add('keepAlive')
          await sleep(clock, 20_000)
        }),
      )
      const outcome = assert.rejects(running, { code: 'LEASE_LOST' })
      await clock.advance(30_000)
      await outcome
      const inJeopardy = named('holdfast hold').filter(({ events }) => events.length === 1)
      assert.equal(inJeopardy.length, spans)
      assert.ok(!hasListeners('jeopardy'), 'nobody listens after the last body')
    },
  )
})

test('jeopardy is told to the body of its lease, and to no other', async () => {
  const { traced, tracer, named, clock, failing, locker } = stage()
  const calm = traceLocker<Locker>(locker({ holder: 'calm' }), { tracer })
  const first = traced.withLeases(['a', 'b'], () => sleep(clock, 3_000))
  const second = calm.withLease('c', () => sleep(clock, 40_000))
  await clock.advance(5_000)
  await first
  failing.add('keepAlive')
  const lost = assert.rejects(
    traced.withLease('d', () => sleep(clock, 30_000)),
    { code: 'LEASE_LOST' },
  )
  await clock.advance(50_000)
  await Promise.all([lost, second])
  assert.deepEqual(
    named('holdfast hold').map(({ attributes, events }) => [attributes['holdfast.name'], events.length]),
    [
      [['a', 'b'], 0],
      ['d', 1],
      ['c', 0],
    ],
  )
  assert.ok(!hasListeners('jeopardy'))
})

test('a loss that nobody has noticed before the body’s end is told all the same', async () => {
  const { traced, one, clock } = stage()
  const blocked = traced.withLease('x', () => clock.block(60_000))
  await assert.rejects(blocked, { code: 'LEASE_LOST' })
  assert.equal(one('holdfast hold').status.code, SpanStatusCode.ERROR)
})

test('a body that throws is an error of its span, and of the call', async () => {
  const { traced, one } = stage()
  const body = () => Promise.reject(new Error('no paper'))
  await assert.rejects(traced.withLease('x', body), /no paper/)
  const { status, attributes } = one('holdfast hold')
  assert.deepEqual([status.code, attributes['holdfast.outcome']], [SpanStatusCode.ERROR, 'failed'])
  assert.match(status.message ?? '', /no paper/)
})

test('a wait of withLease that fails has ended its span, and there is no hold', async () => {
  const { traced, named } = stage()
  const held = await traced.tryAcquire('x')
  await assert.rejects(
    traced.withLease('x', { waitMs: 0 }, () => {}),
    { code: 'ACQUIRE_TIMEOUT' },
  )
  const outcomes = named('holdfast acquire').map(({ attributes }) => attributes['holdfast.outcome'])
  assert.deepEqual(outcomes, ['granted', 'timed-out'])
  assert.deepEqual(named('holdfast hold'), [])
  await held?.release()
})

test('options are checked as without spans, and the rest of the locker is the original', async () => {
  const { traced, tracer, clock, named } = stage()
  const body = () => assert.fail('the body of a refused call runs')
  const wrong: (() => Promise<unknown>)[] = [
    () => traced.withLease('x', { onJeopardy: 7 as never }, body),
    () => traced.withLease('x', null as never, body),
    () => traced.withLease('x', 7 as never, body),
    () => traced.withLease({} as never, body),
    () => traced.withLeases(['x'], null as never, body),
    () => traced.withLeases(undefined as never, body),
    () => traced.acquire(undefined as never),
    () => traced.acquire('x', null as never),
    () => traced.tryAcquire(Symbol('x') as never),
    () => traced.acquireAll(7 as never),
    () => traced.acquirePermits('x', undefined as never),
  ]
  for (const each of wrong) await assert.rejects(each, { code: 'INVALID_ARGUMENT' }, String(each))
  assert.equal(named('holdfast acquire').length, wrong.length, 'each has a span, and it has ended')
  await assert.rejects(traced.withLease('x', undefined as never), { code: 'INVALID_ARGUMENT' })
  assert.equal(traced.holder, 'ours')
  assert.equal(traced.clock, clock)
  await traced.close()
  await assert.rejects(traced.acquire('x'), { code: 'CLOSED' })
  const refused = { code: 'INVALID_ARGUMENT' }
  assert.throws(() => traceLocker({} as never, { tracer }), refused)
  assert.throws(() => traceLocker(traced, undefined as never), refused)
  assert.throws(() => traceLocker(traced, { tracer: { startSpan() {} } as never }), refused)
  assert.equal(trace.getActiveSpan(), undefined)
})

test('the body of withLeases has a hold span: its spans are children, and the loss of one lease is its error', async () => {
  const { traced, tracer, one, named, request, engine, clock } = stage()
  await request('request', () =>
    traced.withLeases(['a', 'b'], async () => void tracer.startSpan('work').end()),
  )
  const hold = one('holdfast hold')
  assert.deepEqual(hold.attributes['holdfast.name'], ['a', 'b'])
  assert.equal(parentOf(one('work')), idOf(hold))
  assert.equal(parentOf(hold), idOf(one('request')))
  assert.equal(hold.status.code, SpanStatusCode.UNSET)
  const lost = traced.withLeases(['a', 'b'], { ttlMs: 9_000 }, async ({ signal }) => {
    engine.deleteName('default', 'b')
    await clock.advance(6_000)
    assert.ok(signal.aborted)
    throw new Error('because of the loss')
  })
  await assert.rejects(lost, { code: 'LEASE_LOST' })
  const [, second] = named('holdfast hold')
  assert.deepEqual(
    [second?.status.code, second?.attributes['holdfast.outcome']],
    [SpanStatusCode.ERROR, 'deleted'],
  )
  await assert.rejects(
    traced.withLeases(['a'], () => Promise.reject(new Error('of the body'))),
    /of the body/,
  )
  assert.equal(named('holdfast hold').at(-1)?.status.message, 'Error: of the body')
})

test('the body of withLeases runs as the body of the locker below: it may enter its names again', async () => {
  const { raw, tracer, named } = stage()
  const traced = traceLocker(reentrant(raw), { tracer })
  const entered = await traced.withLeases(['a', 'b'], () =>
    traced.withLease('a', { waitMs: 0 }, ({ name }) => name),
  )
  assert.equal(entered, 'a')
  const names = (kind: string) => named(kind).map(({ attributes }) => attributes['holdfast.name'])
  assert.deepEqual(names('holdfast acquire'), [['a', 'b'], 'a'])
  assert.deepEqual(names('holdfast hold'), ['a', ['a', 'b']])
})
