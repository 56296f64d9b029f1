/** The metrics for OpenTelemetry, through a meter of its API. */
import { InvalidArgumentError } from '../base/errors.ts'
import { ignore } from '../base/ignore.ts'
import { checkKnownOptions } from '../base/options.ts'
import { checkMethods, collect, type Labels, type MetricsOptions, type Telemetry } from './collector.ts'

export type { MetricsOptions, Telemetry } from './collector.ts'
export { type Span, type TraceOptions, type Tracer, traceLocker } from './spans.ts'

interface Described {
  readonly description: string
  readonly unit?: string
  readonly advice?: { explicitBucketBoundaries: number[] }
}
type Observe = (result: { observe(value: number, labels: Labels): void }) => void

/** The part of a meter of `@opentelemetry/api` that is used. */
export interface Meter {
  createCounter(name: string, options: Described): { add(value: number, labels: Labels): void }
  createHistogram(name: string, options: Described): { record(value: number, labels: Labels): void }
  createObservableGauge(
    name: string,
    options: Described,
  ): { addCallback(observe: Observe): void; removeCallback(observe: Observe): void }
}

/** Prometheus adds `_ratio` to the name of a gauge with the unit `1`. A unit in braces leaves the name as it is. */
const gaugeUnits: Readonly<Record<string, string>> = { held: '{lease}', waiting: '{call}', leader: '{term}' }

const inUse = new WeakMap<Meter, Telemetry>()

/** Counts with a meter what happens to all lockers and guards of this process, from now on. */
export function otelMetrics(meter: Meter, options: MetricsOptions = {}): Telemetry {
  checkKnownOptions('options', options, ['group', 'buckets'])
  const methods = ['createCounter', 'createHistogram', 'createObservableGauge']
  checkMethods('meter', meter, 'a meter of OpenTelemetry', ...methods)
  if (inUse.has(meter))
    throw new InvalidArgumentError(
      'meter',
      'has the metrics of Holdfast already: call otelMetrics once for each meter, or stop the first.',
    )
  const telemetry = collect(options, ({ name: short, kind, help: description }, buckets, read) => {
    const name = `holdfast.${short}`
    if (kind === 'gauge') {
      const observe: Observe = (result) => {
        for (const [labels, value] of read()) result.observe(value, labels)
      }
      const gauge = meter.createObservableGauge(name, { description, unit: gaugeUnits[short] ?? '' })
      gauge.addCallback(observe)
      return { recorderOf: () => ignore, remove: () => gauge.removeCallback(observe) }
    }
    if (kind === 'counter') {
      const counter = meter.createCounter(name, { description })
      return { recorderOf: (labels) => (by) => counter.add(by, labels), remove: ignore }
    }
    const advice = { explicitBucketBoundaries: buckets }
    const histogram = meter.createHistogram(name, { description, unit: 's', advice })
    return { recorderOf: (labels) => (value) => histogram.record(value, labels), remove: ignore }
  })
  inUse.set(meter, telemetry)
  return {
    stop() {
      telemetry.stop()
      if (inUse.get(meter) === telemetry) inUse.delete(meter)
    },
  }
}
