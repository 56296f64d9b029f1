/**
 * Spans around what a locker does. A wrapper, and not a subscriber of the tracing channels: to make a span current, one of those
 * would need the `AsyncLocalStorage` of OpenTelemetry, which has no public access.
 */

import { onAborted } from '../base/aborting.ts'
import { isHoldfastError, textOf } from '../base/errors.ts'
import { onEvent, outcomeOfFailure } from '../base/events.ts'
import type { Fence } from '../base/fence.ts'
import { ignore } from '../base/ignore.ts'
import { readBody } from '../base/lease-body.ts'
import { checkKnownOptions } from '../base/options.ts'
import { overriding } from '../base/overriding.ts'
import { TransientMap } from '../base/transient-map.ts'
import type { AcquireOptions, Lease, LeaseSet, Locker } from '../base/types.ts'
import { checkMethods } from './collector.ts'

type Attributes = Record<string, string | string[] | number>

/** The part of a span of `@opentelemetry/api` that is used. */
export interface Span {
  setAttributes(attributes: Attributes): unknown
  setStatus(status: { code: 2; message: string }): unknown
  addEvent(name: string, attributes: Attributes): unknown
  end(): void
}

/** The part of a tracer of `@opentelemetry/api` that is used. */
export interface Tracer {
  startSpan(name: string, options: { attributes: Attributes }): Span
  startActiveSpan<T>(name: string, options: { attributes: Attributes }, run: (span: Span) => T): T
}

export interface TraceOptions {
  /** Such as `trace.getTracer('holdfast')`. */
  readonly tracer: Tracer
}

type Body<H, T> = (held: H) => Promise<T> | T
type Asked = { readonly mode?: string; readonly signal?: AbortSignal } | undefined

/**
 * The same locker with spans: `holdfast acquire` around each wait, and `holdfast hold` around the body of `withLease` and
 * `withLeases`, whose own spans become children of it. A lease of `acquire` has no span of its own: nothing says which code runs under it.
 */
export function traceLocker<L extends Locker>(locker: L, options: TraceOptions): L {
  checkMethods('locker', locker, 'a locker', 'acquire', 'withLease')
  checkKnownOptions('options', options ?? null, ['tracer'])
  const { tracer } = options
  checkMethods('tracer', tracer, 'a tracer of OpenTelemetry', 'startSpan', 'startActiveSpan')
  const { info } = locker
  const permits = (asked: Asked): Asked => ({ ...asked, mode: 'permits' })
  const about = (name: string | readonly string[], asked: Asked): Attributes => ({
    'holdfast.backend': info.name,
    'holdfast.namespace': info.namespace,
    // The caller may pass anything; the locker refuses a wrong name.
    'holdfast.name': Array.isArray(name) ? name.map(textOf) : textOf(name),
    'holdfast.mode': asked?.mode ?? 'exclusive',
  })
  const start = (name: string | readonly string[], asked: Asked) =>
    tracer.startSpan('holdfast acquire', { attributes: about(name, asked) })
  const acquiring = async <H extends object | null>(
    name: string | readonly string[],
    asked: Asked,
    acquire: () => Promise<H>,
  ): Promise<H> => {
    const span = start(name, asked)
    try {
      const held = await acquire()
      answered(span, held)
      return held
    } catch (error) {
      refused(span, error, asked?.signal)
      throw error
    }
  }
  /** `run` is the locker's own `withLease` or `withLeases`: a wrapper below, such as re-entrancy, has to know the body. */
  const holding = async <H extends Held, T>(
    name: string | readonly string[],
    { options: asked, body }: { readonly options: AcquireOptions; readonly body: Body<H, T> },
    leasesOf: (held: H) => readonly Lease[],
    run: (body: Body<H, T>) => Promise<T>,
  ): Promise<T> => {
    const wait = start(name, asked)
    let hasBegun = false
    try {
      return await run((held) => {
        hasBegun = true
        answered(wait, held)
        return underSpan(tracer, about(name, asked), held, leasesOf(held), body)
      })
    } catch (error) {
      if (!hasBegun) refused(wait, error, asked?.signal)
      throw error
    }
  }
  const traced: Locker = overriding<Locker>(locker, {
    async withLeases<T>(
      names: readonly string[],
      optionsOrBody: AcquireOptions | Body<LeaseSet, T>,
      maybeBody?: Body<LeaseSet, T>,
    ) {
      const given = readBody(optionsOrBody, maybeBody)
      const leasesOf = ({ leases }: LeaseSet) => leases
      return holding(names, given, leasesOf, (body) => locker.withLeases(names, given.options, body))
    },
    acquire: (name, asked) => acquiring(name, asked, () => locker.acquire(name, asked)),
    tryAcquire: (name, asked) => acquiring(name, asked, () => locker.tryAcquire(name, asked)),
    acquireAll: (names, asked) => acquiring(names, asked, () => locker.acquireAll(names, asked)),
    acquirePermits: (name, asked) =>
      acquiring(name, permits(asked), () => locker.acquirePermits(name, asked)),
    tryAcquirePermits: (name, asked) =>
      acquiring(name, permits(asked), () => locker.tryAcquirePermits(name, asked)),
    async withLease<T>(
      name: string,
      optionsOrBody: AcquireOptions | Body<Lease, T>,
      maybeBody?: Body<Lease, T>,
    ) {
      const given = readBody(optionsOrBody, maybeBody)
      const leasesOf = (lease: Lease) => [lease]
      return holding(name, given, leasesOf, (body) => locker.withLease(name, given.options, body))
    },
  })
  return traced as L
}

interface Held {
  readonly signal: AbortSignal
  readonly fence?: Fence
}

/** Spans of running bodies by the ids of their leases; re-entered leases share an id. */
const bodies = new TransientMap<string, Set<Span>>()
let stopHearing = ignore

/** Hears the event, and does not pass an `onJeopardy`: re-entry would refuse an option that the caller has not given. */
function tellJeopardy(leases: readonly Lease[], span: Span): () => void {
  if (bodies.size === 0)
    stopHearing = onEvent('jeopardy', ({ id, remainingMs }) => {
      for (const each of bodies.get(id) ?? [])
        each.addEvent('jeopardy', { 'holdfast.remaining_ms': remainingMs })
    })
  for (const { id } of leases) bodies.set(id, (bodies.get(id) ?? new Set()).add(span))
  return () => {
    for (const { id } of leases) {
      const spans = bodies.get(id)
      if (spans?.delete(span) && spans.size === 0) bodies.delete(id)
    }
    if (bodies.size === 0) stopHearing()
  }
}

function underSpan<H extends Held, T>(
  tracer: Tracer,
  about: Attributes,
  held: H,
  leases: readonly Lease[],
  body: Body<H, T>,
): Promise<T> {
  const attributes = { ...about, ...tokenOf(held) }
  return tracer.startActiveSpan('holdfast hold', { attributes }, async (span) => {
    const untie = onAborted(held.signal, ({ reason: { reason } }) =>
      fail(span, reason, `lease lost: ${reason}`),
    )
    const untell = tellJeopardy(leases, span)
    try {
      return await body(held)
    } catch (error) {
      if (leases.every(({ state }) => state !== 'lost')) fail(span, 'failed', textOf(error))
      throw error
    } finally {
      // A lease judges itself when its state is read, so a loss is told before the span ends.
      for (const { state } of leases) void state
      untie()
      untell()
      span.end()
    }
  })
}

const tokenOf = ({ fence }: { readonly fence?: Fence }): Attributes =>
  fence === undefined ? {} : { 'holdfast.token': fence.token.toString() }

function answered(span: Span, held: object | null): void {
  const outcome = held === null ? 'busy' : 'granted'
  span.setAttributes({ 'holdfast.outcome': outcome, ...tokenOf(held ?? {}) })
  span.end()
}

function refused(span: Span, error: unknown, signal: AbortSignal | undefined): void {
  const isLate = isHoldfastError(error, 'ACQUIRE_TIMEOUT')
  fail(span, isLate ? 'timed-out' : outcomeOfFailure(error, signal), textOf(error))
  span.end()
}

function fail(span: Span, outcome: string, message: string): void {
  span.setAttributes({ 'holdfast.outcome': outcome })
  span.setStatus({ code: 2, message })
}
