/** The metrics with the real client libraries of Prometheus and OpenTelemetry. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import * as promClient from 'prom-client'
import { describe, onTestFinished, test } from 'vitest'
import { tableRows } from '../../test/markdown-table.ts'
import { type LockerCommand, lockerCommands } from '../../test/model/locker/commands.ts'
import { play } from '../../test/model/locker/play.ts'
import { quiesce } from '../../test/model/locker/quiesce.ts'
import { LockerWorld } from '../../test/model/locker/world.ts'
import { createRig, eventsDuring, raisedDuring } from '../../test/rig.ts'
import { newSeed } from '../../test/seed.ts'
import { bothOutputs, type Numbers } from '../../test/telemetry/outputs.ts'
import { emit, eventKinds, hasListeners, onEvent, warn, warningCounters } from '../base/events.ts'
import { memoryGuard } from '../guards/memory.ts'
import { election } from '../recipes/election.ts'
import { faultyBackend } from '../testing/faulty-backend.ts'
import { metrics, prometheusName } from './metrics.ts'
import { otelMetrics } from './opentelemetry.ts'
import { prometheusMetrics } from './prometheus.ts'

const ofMemory = 'backend="memory",group="",namespace="default"'

/** The sum of a metric's series, of those that have this text. */
function sum(numbers: Numbers, name: string, text = ''): number {
  const found = [...numbers].filter(([series]) => series.startsWith(`${name}{`) && series.includes(text))
  return found.reduce((total, [, value]) => total + value, 0)
}

/** Sums of floating-point numbers differ in the last digits by the order of adding. */
function rounded(numbers: Numbers): [string, number][] {
  return [...numbers].map(([series, value]) => [series, Number(value.toPrecision(9))])
}

describe('the numbers', () => {
  test('of both outputs agree after the same run, and are those of the run', async () => {
    const outputs = bothOutputs()
    const { clock, locker, engine } = createRig()
    const ours = locker()
    const other = locker()
    const held = await ours.acquire('a')
    assert.equal(await other.tryAcquire('a'), null)
    const late = other.acquire('a', { waitMs: 700 }).catch(() => {})
    const stop = new AbortController()
    const cancelled = other.acquire('a', { signal: stop.signal, mode: 'shared' }).catch(() => {})
    const refused = other.acquire('a', { maxWaiters: 0 }).catch(() => {})
    const served = other.acquire('a')
    await clock.advance(1_000)
    const between = await outputs.scraped()
    assert.equal(sum(between, 'holdfast_held'), 1)
    assert.equal(sum(between, 'holdfast_waiting'), 2)
    stop.abort()
    await clock.advance(1_000)
    await held.release()
    await Promise.all([late, cancelled, refused])
    const lease = await served
    await clock.advance(6_000)
    engine.deleteName('default', 'a')
    await clock.advance(6_000)
    const guard = memoryGuard({ name: 'stock' })
    await using permit = await ours.acquirePermits('p', { capacity: 2 })
    void permit
    await using current = await ours.acquire('b')
    await guard.run(current, () => {})
    await assert.rejects(
      guard.run(lease, () => {}),
      { code: 'LEASE_LOST' },
    )
    const leadership = await election(ours, 'leader').campaign()
    assert.equal(sum(await outputs.scraped(), 'holdfast_leader'), 1)
    await leadership.resign()
    assert.equal(await ours.forceRelease('b', { all: true, reason: 'stuck' }), 1)
    warn({ backend: 'redis', namespace: 'n', code: 'HOLDFAST_REDIS_CLOCK', warning: 'w' })

    const scraped = await outputs.scraped()
    assert.deepEqual(rounded(scraped), rounded(await outputs.exported()))
    const acquired = (outcome: string) =>
      sum(
        scraped,
        'holdfast_acquire_seconds_count',
        `mode="exclusive",namespace="default",outcome="${outcome}"`,
      )
    assert.deepEqual(['granted', 'busy', 'timed-out', 'queue-full', 'failed'].map(acquired), [4, 1, 1, 1, 0])
    const get = (series: string) => scraped.get(series)
    const acquire = (labels: string, part = 'count') =>
      get(`holdfast_acquire_seconds_${part}{backend="memory",group="",${labels}}`)
    assert.equal(acquire('mode="shared",namespace="default",outcome="cancelled"'), 1)
    assert.equal(acquire('mode="permits",namespace="default",outcome="granted"'), 1)
    assert.equal(acquire('mode="exclusive",namespace="default",outcome="timed-out"', 'sum'), 0.7)
    assert.equal(
      acquire('le="1",mode="exclusive",namespace="default",outcome="timed-out"', 'bucket'),
      1,
      'it is in the bucket of 1 s',
    )
    assert.equal(sum(scraped, 'holdfast_hold_seconds_count', 'ended="released"'), 2)
    assert.equal(sum(scraped, 'holdfast_hold_seconds_sum', 'ended="released"'), 2)
    assert.equal(sum(scraped, 'holdfast_hold_seconds_count', 'ended="lost"'), 1)
    assert.equal(get(`holdfast_lost_total{${ofMemory},reason="deleted"}`), 1)
    assert.equal(get('holdfast_guard_total{guard="stock",outcome="accepted"}'), 1)
    assert.equal(get('holdfast_guard_total{guard="stock",outcome="lost"}'), 1)
    assert.equal(get(`holdfast_force_released_total{${ofMemory}}`), 1)
    assert.equal(get('holdfast_warnings_total{backend="redis",code="HOLDFAST_REDIS_CLOCK",namespace="n"}'), 1)
    assert.equal(get(`holdfast_leader{${ofMemory}}`), 0)
    assert.equal(get(`holdfast_held{${ofMemory}}`), 2)
    assert.equal(get(`holdfast_waiting{${ofMemory}}`), 0)
  })

  test('every metric has a number after its events, with the same labels in both outputs', async () => {
    const outputs = bothOutputs()
    const about = { backend: 'b', namespace: 'n', name: 'x', holder: 'h' }
    const lease = { ...about, id: 'l', token: 1n, mode: 'shared' } as const
    const attempt = { ...about, attemptId: 'a', mode: 'shared' } as const
    const error = new Error('planted')
    emit('waiting', { ...attempt, waitMs: 10 })
    emit('acquired', { ...lease, ...attempt, waitedMs: 20 })
    emit('jeopardy', { ...lease, remainingMs: 1 })
    emit('held-long', { ...lease, heldForMs: 1 })
    emit('dropped', lease)
    emit('dual-owner-suspected', { ...lease, reason: 'taken-over', remainingMs: 1 })
    emit('release-failed', { ...lease, error })
    emit('force-released', { ...about, reason: 'r', count: 3 })
    emit('lost', { ...lease, reason: 'taken-over', heldForMs: 5_000 })
    emit('renewed', { ...about, leases: 1, tookMs: 2 })
    emit('renewal-failed', { ...about, leases: 1, tookMs: 3, error })
    emit('paused', { ...about, lateByMs: 4 })
    emit('guard-accepted', { guard: 'g', name: 'x', token: 1n })
    emit('guard-refused', { guard: 'g', name: null, token: null, reason: 'invalid', highest: null })
    warn({ ...about, code: 'HOLDFAST_REDIS_CLOCK', warning: 'w' })
    emit('idempotent', { name: 'x', outcome: 'done', tookMs: 1 })
    emit('optimistic', { outcome: 'conflict', attempts: 4 })
    emit('job', { name: 'x', outcome: 'set-aside', starts: 5 })
    emit('tick', { ...about, outcome: 'ran', tick: null, lateByMs: 1, tookMs: 1 })
    emit('leadership', { ...about, id: 'l', phase: 'began', reason: null })
    const scraped = await outputs.scraped()
    assert.deepEqual(rounded(scraped), rounded(await outputs.exported()))
    const parts = metrics.map((metric) => [metric, prometheusName(metric)] as const)
    for (const [{ kind, labels }, name] of parts) {
      const suffix = kind === 'waits' || kind === 'holds' ? '_count' : ''
      const [series] = [...scraped.keys()].filter((each) => each.startsWith(`${name}${suffix}{`))
      assert.ok(series !== undefined, `${name} has no number`)
      assert.deepEqual(
        [...series.matchAll(/(\w+)="[^"]/g)].map(([, label]) => label),
        [...labels].filter((each) => each !== 'group').sort(),
      )
    }
    assert.equal(scraped.get('holdfast_force_released_total{backend="b",group="",namespace="n"}'), 3)
  })

  test('no name, holder, token or id is a label, and the page lists every metric with its labels', () => {
    for (const { labels } of metrics)
      for (const secret of ['name', 'holder', 'owner', 'note', 'token', 'id', 'attemptId', 'leaseId'])
        assert.ok(!labels.includes(secret))
    const documented = tableRows('metrics.md').map(({ metric, labels = '' }) => [
      metric,
      labels
        .split(', ')
        .filter((label) => label !== '')
        .sort(),
    ])
    assert.deepEqual(
      documented,
      metrics.map((metric) => [prometheusName(metric), [...metric.labels].sort()]),
    )
  })

  test('buckets can be replaced', async () => {
    const outputs = bothOutputs({ buckets: { waits: [2, 4] } })
    await (await createRig().locker().acquire('a')).release()
    const scraped = await outputs.scraped()
    assert.deepEqual(rounded(scraped), rounded(await outputs.exported()))
    const boundsOf = (name: string) =>
      [...scraped.keys()].flatMap((series) => new RegExp(`${name}_.*le="(.*?)"`).exec(series)?.[1] ?? [])
    assert.deepEqual(boundsOf('acquire'), ['+Inf', '2', '4'])
    assert.deepEqual([boundsOf('hold').length, boundsOf('hold').includes('3600')], [13, true])
  })
})

const lock = {
  machine: 0,
  name: 0,
  ttl: 0,
  mode: 'exclusive',
  lockDelayMs: 0,
  holdAtLeastMs: 0,
  maxHoldMs: Number.POSITIVE_INFINITY,
} as const
/** The first try ends without an event, and a later one tells of the wait: both ends of the wait have one id. */
const waitAfterLostRequest: readonly LockerCommand[] = [
  { do: 'fault', machine: 0, call: 'enqueue', fault: { kind: 'lost-request' } },
  { do: 'acquire', ...lock, waitMs: 350 },
  { do: 'tryAcquire', ...lock },
]

describe('gauges', () => {
  test('a hold is observed once, however often its release is told', async () => {
    const outputs = bothOutputs()
    const { locker } = createRig()
    const failing = { release: true }
    const client = locker({
      wrap: (backend) =>
        faultyBackend(backend, {
          plan: ({ kind }) =>
            kind === 'release' && failing.release
              ? { kind: 'error-before', error: new Error('planted') }
              : null,
        }),
    })
    const lease = await client.acquire('a')
    assert.equal(await lease.release(), 'unknown')
    failing.release = false
    await lease.release()
    const scraped = await outputs.scraped()
    assert.equal(sum(scraped, 'holdfast_hold_seconds_count'), 1)
    assert.equal(sum(scraped, 'holdfast_held'), 0)
  })

  test('what began before the listener came, or is told twice, does not make them drift', async () => {
    const { locker, clock } = createRig()
    const early = await locker().acquire('a')
    const waiting = locker().acquire('a')
    await clock.settle()
    const outputs = bothOutputs()
    await early.release()
    const lease = await waiting
    assert.equal(sum(await outputs.scraped(), 'holdfast_held'), 1)
    await lease.release()
    const about = { backend: 'memory', namespace: 'default', name: 'x', holder: 'h', mode: 'shared' } as const
    for (let times = 0; times < 2; times++) emit('timed-out', { ...about, attemptId: 'unheard', waitedMs: 1 })
    const again = { ...about, attemptId: 'a', id: 'l', token: 1n, waitedMs: 1 }
    for (let times = 0; times < 2; times++) emit('acquired', again)
    for (let times = 0; times < 2; times++) emit('lost', { ...again, reason: 'expired', heldForMs: 1 })
    const scraped = await outputs.scraped()
    for (const gauge of ['holdfast_held', 'holdfast_waiting', 'holdfast_leader'])
      for (const [series, value] of scraped) if (series.startsWith(`${gauge}{`)) assert.equal(value, 0)
    assert.equal(sum(scraped, 'holdfast_acquire_seconds_count', 'timed-out'), 2)
    assert.equal(
      sum(scraped, 'holdfast_hold_seconds_count'),
      2,
      'a hold whose beginning was not heard is left out',
    )
  })

  test('a term is over with its lease, also if nothing tells of the term’s end', async () => {
    const outputs = bothOutputs()
    const about = { backend: 'memory', namespace: 'default', name: 'x', holder: 'h' }
    const lease = { ...about, token: 1n, mode: 'exclusive', heldForMs: 1 } as const
    for (const id of ['lost', 'released', 'current'])
      emit('leadership', { ...about, id, phase: 'began', reason: null })
    assert.equal(sum(await outputs.scraped(), 'holdfast_leader'), 3)
    emit('lost', { ...lease, id: 'lost', reason: 'expired' })
    emit('released', { ...lease, id: 'released', outcome: 'released' })
    assert.equal(sum(await outputs.scraped(), 'holdfast_leader'), 1)
  })

  test('a try that fails and is repeated neither ends the wait nor counts as a call', async () => {
    const outputs = bothOutputs()
    const about = { backend: 'memory', namespace: 'default', name: 'x', holder: 'h', mode: 'shared' } as const
    const failed = {
      ...about,
      attemptId: 'a',
      outcome: 'failed',
      waitedMs: 1,
      error: new Error('x'),
    } as const
    emit('waiting', { ...about, attemptId: 'a', waitMs: 10 })
    emit('failed', { ...failed, final: false })
    const between = await outputs.scraped()
    assert.equal(sum(between, 'holdfast_waiting'), 1)
    assert.equal(sum(between, 'holdfast_acquire_seconds_count'), 0)
    emit('failed', { ...failed, final: true })
    const scraped = await outputs.scraped()
    assert.equal(sum(scraped, 'holdfast_waiting'), 0)
    assert.equal(sum(scraped, 'holdfast_acquire_seconds_count', 'outcome="failed"'), 1)
  })

  test('return to zero after whatever callers, machines and networks do', { timeout: 60_000 }, async () => {
    const outputs = bothOutputs()
    const most = { held: 0, waiting: 0 }
    let runs = 0
    await fc.assert(
      fc.asyncProperty(lockerCommands, fc.nat(), async (commands, seed) => {
        const world = new LockerWorld(seed)
        await play(world, commands)
        // Registries collect asynchronously, so only some of the runs are looked at half way, and all until both were seen to rise.
        if (runs++ % 10 === 0 || most.held * most.waiting === 0) {
          const between = await outputs.scraped()
          most.held = Math.max(most.held, sum(between, 'holdfast_held'))
          most.waiting = Math.max(most.waiting, sum(between, 'holdfast_waiting'))
        }
        await quiesce(world)
      }),
      { numRuns: 60, seed: newSeed(), examples: [[waitAfterLostRequest, 0]] },
    )
    assert.ok(most.held > 0 && most.waiting > 0, JSON.stringify(most))
    const scraped = await outputs.scraped()
    assert.deepEqual([sum(scraped, 'holdfast_held'), sum(scraped, 'holdfast_waiting')], [0, 0])
    assert.deepEqual(rounded(scraped), rounded(await outputs.exported()))
    const granted = sum(scraped, 'holdfast_acquire_seconds_count', 'outcome="granted"')
    assert.equal(sum(scraped, 'holdfast_hold_seconds_count'), granted, 'every hold is observed, and once')
  })
})

describe('groups', () => {
  test('are what the function says, the first hundred of them', async () => {
    const outputs = bothOutputs({ group: (name) => name.split('/')[0] ?? '' })
    const client = createRig().locker()
    for (let number = 0; number < 103; number++) await client.acquire(`g${number}/x`)
    await client.acquire('g7/y')
    const scraped = await outputs.scraped()
    assert.equal(sum(scraped, 'holdfast_held', 'group="g7"'), 2)
    assert.equal(sum(scraped, 'holdfast_held', 'group="other"'), 3)
    assert.equal([...scraped.keys()].filter((series) => series.startsWith('holdfast_held{')).length, 101)
  })

  test('a function that throws or answers no text counts as other, and warns once', async () => {
    const answers = [() => assert.fail('planted'), () => 7, () => undefined]
    const registry = new promClient.Registry()
    const group = () => answers.shift()?.() as never
    const { stop } = prometheusMetrics({ client: promClient, registry, group })
    onTestFinished(stop)
    const about = {
      backend: 'b',
      namespace: 'n',
      holder: 'h',
      name: 'x',
      id: 'l',
      token: null,
      mode: 'shared',
    } as const
    const warnings = await eventsDuring('warning', async () => {
      for (let times = 0; times < 3; times++) emit('dropped', about)
    })
    assert.deepEqual(
      warnings.map(({ code }) => code),
      ['HOLDFAST_TELEMETRY'],
    )
    assert.match(await registry.metrics(), /holdfast_dropped_total\{.*group="other".*\} 3\n/)
  })
})

describe('set-up', () => {
  const client = promClient

  test('twice on one registry or meter is refused with a sentence, until the first is stopped', async () => {
    const { registry, meter, stop } = bothOutputs()
    const again = { message: /already.*once for each.*stop/ }
    assert.throws(() => prometheusMetrics({ client, registry }), again)
    assert.throws(() => otelMetrics(meter), again)
    stop()
    const second = prometheusMetrics({ client, registry })
    onTestFinished(second.stop)
    onTestFinished(otelMetrics(meter).stop)
    await createRig().locker().acquire('a')
    assert.match(await registry.metrics(), /holdfast_held\{.*\} 1\n/)
  })

  test('a second stop of metrics that are over leaves those that came later alone', () => {
    const { meter, stop } = bothOutputs()
    stop()
    const later = otelMetrics(meter)
    onTestFinished(later.stop)
    stop()
    assert.throws(() => otelMetrics(meter), { code: 'INVALID_ARGUMENT' })
    later.stop()
    onTestFinished(otelMetrics(meter).stop)
  })

  test('stop removes all listeners, and may be called again', () => {
    const isHeard = () => eventKinds.filter(hasListeners)
    assert.deepEqual(isHeard(), [])
    const { stop } = bothOutputs()
    const heard = Object.keys(Object.assign({}, ...metrics.map(({ feeds }) => feeds))).sort()
    assert.deepEqual([...isHeard(), 'warning'].sort(), heard)
    const callbacks = new Set<unknown>()
    const gauge = {
      addCallback: (callback: unknown) => void callbacks.add(callback),
      removeCallback: (callback: unknown) => void callbacks.delete(callback),
    }
    const instrument = { add() {}, record() {} }
    const other = otelMetrics({
      createCounter: () => instrument,
      createHistogram: () => instrument,
      createObservableGauge: () => gauge,
    })
    assert.equal(callbacks.size, 3)
    for (const end of [stop, stop, other.stop, other.stop]) end()
    assert.deepEqual(isHeard(), [])
    assert.deepEqual([callbacks.size, warningCounters.size], [0, 0])
  })

  test('what lacks a method is refused at the start', () => {
    const refused = { code: 'INVALID_ARGUMENT' }
    const registry = new promClient.Registry()
    const wrong: (() => unknown)[] = [
      () => prometheusMetrics(undefined as never),
      () => prometheusMetrics({} as never),
      () => prometheusMetrics({ client: { ...client, Gauge: undefined } as never }),
      () => prometheusMetrics({ client, registry: {} as never }),
      () =>
        prometheusMetrics({
          client,
          registry: { getSingleMetric: () => undefined, removeSingleMetric() {} } as never,
        }),
      () => prometheusMetrics({ client, registry, group: 'x' as never }),
      () => prometheusMetrics({ client, registry, groups: 1 } as never),
      ...[{ waits: [] }, { waits: [2, 1] }, { holds: [Number.NaN] }, { waits: 1 }, { other: [1] }].map(
        (buckets) => () => prometheusMetrics({ client, registry, buckets: buckets as never }),
      ),
      () => otelMetrics(null as never),
      () => otelMetrics({ createCounter() {}, createHistogram() {} } as never),
    ]
    for (const each of wrong) assert.throws(each, refused, String(each))
    assert.deepEqual(eventKinds.filter(hasListeners), [], 'nothing is left behind')
    assert.deepEqual(registry.getMetricsAsArray(), [])
  })

  test('the module’s own registry is the default', () => {
    const { stop } = prometheusMetrics({ client })
    onTestFinished(stop)
    assert.ok(promClient.register.getSingleMetric('holdfast_acquire_seconds'))
  })

  test('counting warnings does not keep them from the process', async () => {
    bothOutputs()
    const told: Error[] = []
    const listener = (warning: Error) => void told.push(warning)
    process.on('warning', listener)
    onTestFinished(() => void process.off('warning', listener))
    warn({ backend: 'redis', namespace: 'n', code: 'HOLDFAST_REDLOCK_NO_VOTE', warning: 'w' })
    await new Promise((resolve) => setImmediate(resolve))
    assert.equal(told.length, 1)
  })

  test('a listener that throws does not end a lease', async () => {
    const failing = () => assert.fail('planted')
    const registry = new promClient.Registry()
    class Broken extends promClient.Histogram {
      override labels() {
        return { observe: failing, startTimer: failing } as never
      }
    }
    const { stop } = prometheusMetrics({ client: { ...client, Histogram: Broken }, registry })
    onTestFinished(stop)
    onTestFinished(onEvent('acquired', failing))
    const { locker, clock } = createRig()
    let raised: string[] = []
    raised = await raisedDuring(async () => {
      const lease = await locker().acquire('a')
      await clock.advance(20_000)
      assert.equal(lease.state, 'held')
      assert.equal(await lease.release(), 'released')
      await new Promise((resolve) => setImmediate(resolve))
    })
    assert.ok(raised.length >= 2 && raised.every((message) => message === 'planted'), raised.join())
  })
})
