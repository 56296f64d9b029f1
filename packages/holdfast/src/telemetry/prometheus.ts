/** The metrics for Prometheus, in a registry of `prom-client`. */
import { InvalidArgumentError } from '../base/errors.ts'
import { ignore } from '../base/ignore.ts'
import { checkKnownOptions } from '../base/options.ts'
import { checkMethods, collect, type Labels, type MetricsOptions, type Telemetry } from './collector.ts'
import { metrics, prometheusName } from './metrics.ts'

export type { MetricsOptions, Telemetry } from './collector.ts'

/** The part of a registry of prom-client that is used. */
export interface PromRegistry {
  getSingleMetric(name: string): unknown
  // biome-ignore lint/suspicious/noExplicitAny: metrics of each class have types of their own
  registerMetric(metric: any): void
  removeSingleMetric(name: string): void
}

// biome-ignore lint/suspicious/noExplicitAny: the options of each class have types of their own
type New<Metric> = new (options: any) => Metric

/** The part of the module `prom-client` that is used. */
export interface PromClient {
  readonly register: PromRegistry
  readonly Counter: New<{ labels(labels: Labels): { inc(by: number): void } }>
  readonly Gauge: New<{ set(labels: Labels, value: number): void }>
  readonly Histogram: New<{ labels(labels: Labels): { observe(value: number): void } }>
}

export interface PrometheusOptions extends MetricsOptions {
  /** The module `prom-client`. */
  readonly client: PromClient
  /** Default: the module's own registry. */
  readonly registry?: PromRegistry
}

/** Counts in a registry what happens to all lockers and guards of this process, from now on. */
export function prometheusMetrics(options: PrometheusOptions): Telemetry {
  checkKnownOptions('options', options ?? null, ['client', 'registry', 'group', 'buckets'])
  const { client, registry = client?.register } = options
  checkMethods('client', client, 'the module prom-client', 'Counter', 'Gauge', 'Histogram')
  const methods = ['getSingleMetric', 'registerMetric', 'removeSingleMetric']
  checkMethods('registry', registry, 'a registry of prom-client', ...methods)
  if (metrics.some((metric) => registry.getSingleMetric(prometheusName(metric)) !== undefined))
    throw new InvalidArgumentError(
      'registry',
      'has the metrics of Holdfast already: call prometheusMetrics once for each registry, or stop the first.',
    )
  return collect(options, (metric, buckets, read) => {
    const { kind, labels: labelNames, help } = metric
    const name = prometheusName(metric)
    const given = { name, help, labelNames, registers: [registry] }
    const remove = () => registry.removeSingleMetric(name)
    if (kind === 'gauge') {
      const gauge = new client.Gauge({
        ...given,
        collect() {
          for (const [labels, value] of read()) gauge.set(labels, value)
        },
      })
      return { recorderOf: () => ignore, remove }
    }
    if (kind === 'counter') {
      const counter = new client.Counter(given)
      const recorderOf = (labels: Labels) => {
        const one = counter.labels(labels)
        return (by: number) => one.inc(by)
      }
      return { recorderOf, remove }
    }
    const histogram = new client.Histogram({ ...given, buckets })
    const recorderOf = (labels: Labels) => {
      const one = histogram.labels(labels)
      return (value: number) => one.observe(value)
    }
    return { recorderOf, remove }
  })
}
