/** Tracing channels for spans: around an acquiring call with its wait, and around the body of `withLease`. */
import { type TracingChannel, tracingChannel } from 'node:diagnostics_channel'
import type { AboutAttempt, AboutLease } from '../base/events.ts'

const acquiring = tracingChannel<object, object>('holdfast:acquire')
const bodies = tracingChannel<object, object>('holdfast:body')

export function traceAcquire<T>(about: () => AboutAttempt, run: () => Promise<T>): Promise<T> {
  return acquiring.hasSubscribers ? traced(acquiring, about(), run) : run()
}

export function traceBody<T>(about: () => AboutLease, run: () => Promise<T>): Promise<T> {
  return bodies.hasSubscribers ? traced(bodies, about(), run) : run()
}

/** Subscribers get no result: a lease in their hands could be released behind its holder's back. */
async function traced<T>(
  channel: TracingChannel<object, object>,
  about: object,
  run: () => Promise<T>,
): Promise<T> {
  let value: T | undefined
  await channel.tracePromise(async () => {
    value = await run()
  }, about)
  return value as T
}
