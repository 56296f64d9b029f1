/** Both outputs of the metrics at once, and their numbers in one form: as Prometheus would read them. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  AggregationTemporality,
  DataPointType,
  InMemoryMetricExporter,
  MeterProvider,
  type MetricData,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import * as promClient from 'prom-client'
import { onTestFinished } from 'vitest'
import type { MetricsOptions } from '../../src/telemetry/collector.ts'
import { otelMetrics } from '../../src/telemetry/opentelemetry.ts'
import { prometheusMetrics } from '../../src/telemetry/prometheus.ts'

/** By series, such as `holdfast_lost_total{backend="memory",group="",namespace="default",reason="expired"}`. */
export type Numbers = ReadonlyMap<string, number>

export function bothOutputs(options: MetricsOptions = {}) {
  const registry = new promClient.Registry()
  const prometheus = prometheusMetrics({ client: promClient, registry, ...options })
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 })
  const provider = new MeterProvider({ readers: [reader] })
  const meter = provider.getMeter('holdfast')
  const otel = otelMetrics(meter, options)
  const stop = () => {
    prometheus.stop()
    otel.stop()
  }
  onTestFinished(async () => {
    stop()
    await provider.shutdown()
  })
  return {
    registry,
    meter,
    stop,
    scraped: async (): Promise<Numbers> => numbersIn(await scrape(registry)),
    async exported(): Promise<Numbers> {
      exporter.reset()
      await provider.forceFlush()
      const [scope] = exporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics)
      return new Map((scope?.metrics ?? []).flatMap(seriesOf).sort(([a], [b]) => (a < b ? -1 : 1)))
    },
  }
}

/** As a Prometheus server does it. */
async function scrape(registry: promClient.Registry): Promise<string> {
  await using server = createServer(async (_, response) => {
    response.setHeader('content-type', registry.contentType)
    response.end(await registry.metrics())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const answer = await fetch(`http://127.0.0.1:${port}/metrics`, { headers: { connection: 'close' } })
  return answer.text()
}

export function numbersIn(text: string): Numbers {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  const numbers = lines.map((line): [string, number] => {
    const [, name = '', labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
    return [
      `${name}{${labels
        .split(/,(?=\w+=")/)
        .sort()
        .join(',')}}`,
      Number(value),
    ]
  })
  return new Map(numbers.sort(([a], [b]) => (a < b ? -1 : 1)))
}

/**
 * Names and units become those of Prometheus by the rules of OpenTelemetry's Collector and of Prometheus' own receiver: an annotation
 * such as `{lease}` is dropped, another unit becomes a suffix, and `1` does so for gauges only.
 */
function seriesOf(metric: MetricData): [string, number][] {
  const { name, unit } = metric.descriptor
  const suffixOf: Readonly<Record<string, string>> = {
    s: '_seconds',
    1: metric.dataPointType === DataPointType.GAUGE ? '_ratio' : '',
  }
  const base =
    name.replaceAll('.', '_') + (suffixOf[unit] ?? unit.replace(/^(?!\{|$)/, '_').replace(/\{.*\}/, ''))
  const key = (suffix: string, labels: object) => {
    const pairs = Object.entries(labels).map(([label, value]) => `${label}="${value}"`)
    return `${base}${suffix}{${pairs.sort().join(',')}}`
  }
  if (metric.dataPointType === DataPointType.HISTOGRAM)
    return metric.dataPoints.flatMap(({ attributes, value: { buckets, count, sum } }) => {
      let below = 0
      const bounds = [...buckets.boundaries.map(String), '+Inf']
      return [
        ...bounds.map((le, at): [string, number] => {
          below += buckets.counts[at] ?? 0
          return [key('_bucket', { ...attributes, le }), below]
        }),
        [key('_count', attributes), count],
        [key('_sum', attributes), sum ?? Number.NaN],
      ]
    })
  if (metric.dataPointType === DataPointType.EXPONENTIAL_HISTOGRAM) throw new Error(`${name} has no buckets`)
  const suffix = metric.dataPointType === DataPointType.SUM && metric.isMonotonic ? '_total' : ''
  return metric.dataPoints.map(({ attributes, value }) => [key(suffix, attributes), value])
}
