/**
 * What the metrics cost: pairs on the memory backend, where a pair is nearly nothing but Holdfast, with both outputs on and without.
 * Listeners hear the whole process, so each contender switches them when its turn comes.
 */
import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'
import { createLocker } from 'holdfast'
import { memory } from 'holdfast/memory'
import { otelMetrics } from 'holdfast/telemetry/opentelemetry'
import { prometheusMetrics } from 'holdfast/telemetry/prometheus'
import * as promClient from 'prom-client'
import type { Contender, Subject } from '../subject.ts'

/** Without a reader the SDK would keep no numbers. */
class Reader extends MetricReader {
  protected override async onShutdown() {}
  protected override async onForceFlush() {}
}

function startBoth(): () => void {
  const provider = new MeterProvider({ readers: [new Reader()] })
  const outputs = [
    prometheusMetrics({ client: promClient, registry: new promClient.Registry() }),
    otelMetrics(provider.getMeter('bench')),
  ]
  return () => {
    for (const { stop } of outputs) stop()
  }
}

let stopMetrics: (() => void) | undefined

function contender(name: string, isCounted: boolean): Contender {
  return {
    name,
    async open() {
      const locker = createLocker(memory())
      return {
        async pair(lock) {
          if (isCounted) stopMetrics ??= startBoth()
          else if (stopMetrics !== undefined) {
            stopMetrics()
            stopMetrics = undefined
          }
          const lease = await locker.acquire(lock)
          await lease.release()
        },
        close: () => locker.close(),
      }
    },
  }
}

export const subject = (): Subject => ({
  raw: 'Holdfast without a listener',
  comparisons: [
    {
      setting: 'in this process',
      contenders: [contender('without', false), contender('holdfast with both metric outputs', true)],
    },
  ],
})
