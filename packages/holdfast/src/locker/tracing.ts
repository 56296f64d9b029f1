/** Tracing channels for spans: around an acquiring call with its wait, and around the body of `withLease`. */
import { type TracingChannel, tracingChannel } from 'node:diagnostics_channel'
import type { AboutAttempt, AboutLease } from '../base/events.ts'

/** Ask `hasSubscribers` before you call `traced`: nearly always there are none. */
export const acquireChannel = tracingChannel<object, object>('holdfast:acquire')
export const bodyChannel = tracingChannel<object, object>('holdfast:body')

/** The context of an acquiring call. `outcome` is there before the promise settles, unless the call fails. */
export type TracedAttempt = AboutAttempt & { outcome?: 'granted' | 'busy' }

/** Subscribers get no result: a lease in their hands could be released behind its holder's back. */
export async function traced<T>(
  channel: TracingChannel<object, object>,
  about: AboutAttempt | AboutLease,
  run: () => Promise<T>,
): Promise<T> {
  let value: T | undefined
  await channel.tracePromise(async () => {
    value = await run()
  }, about)
  return value as T
}
