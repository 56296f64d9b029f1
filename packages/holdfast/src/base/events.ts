/**
 * One vocabulary for logs, metrics, traces and the dashboard, published on `node:diagnostics_channel` under
 * `holdfast:<kind>`. Nothing is computed for an event without listeners.
 */
import { type Channel, channel } from 'node:diagnostics_channel'
import type { Mode } from '../spi.ts'
import { callSafely } from './call-safely.ts'
import { isHoldfastError, type LossReason } from './errors.ts'
import { inNeutralContext } from './neutral-context.ts'
import { checkOneOf } from './options.ts'
import { tokensAsText } from './tokens-as-text.ts'

/** Members of every event about a name. */
export interface AboutName {
  readonly backend: string
  readonly namespace: string
  readonly name: string
  readonly holder: string
}

/** Members that come from the options of the call. `owner` and `note` are absent if the call gave none. */
export interface AboutRequest extends AboutName {
  readonly mode: Mode
  readonly owner?: string
  readonly note?: string
}

/** Members of every event about a lease. */
export interface AboutLease extends AboutRequest {
  readonly id: string
  readonly token: bigint | null
}

/** Members of every event of an acquiring call. */
export interface AboutAttempt extends AboutRequest {
  /** The same in all events of the call. */
  readonly attemptId: string
}

/** One name was asked for while another was held, and where in the program. */
export interface LockOrder {
  readonly held: string
  readonly heldAt: string
  readonly asked: string
  readonly askedAt: string
}

export interface HoldfastEvents {
  /** An acquire has started to wait. */
  waiting: AboutAttempt & { readonly waitMs: number }
  acquired: AboutLease & AboutAttempt & { readonly waitedMs: number }
  /** A `tryAcquire` found it taken. */
  busy: AboutAttempt & { readonly waitedMs: number }
  'timed-out': AboutAttempt & { readonly waitedMs: number }
  /** An acquire failed, or one of its tries did and it goes on trying (`final: false`). */
  failed: AboutAttempt & {
    readonly error: unknown
    readonly final: boolean
    /** `cancelled`: by the caller's signal, or because the locker closes. */
    readonly outcome: 'failed' | 'cancelled' | 'queue-full'
    readonly waitedMs: number
  }
  renewed: {
    readonly backend: string
    readonly namespace: string
    readonly leases: number
    readonly tookMs: number
  }
  'renewal-failed': {
    readonly backend: string
    readonly namespace: string
    readonly leases: number
    readonly error: unknown
    readonly tookMs: number
  }
  jeopardy: AboutLease & { readonly remainingMs: number }
  lost: AboutLease & {
    readonly reason: LossReason
    /** With `force-released`: the reason that the operator gave. */
    readonly detail?: string
    readonly heldForMs: number
  }
  released: AboutLease & { readonly heldForMs: number; readonly outcome: 'released' | 'not-held' | 'unknown' }
  'release-failed': AboutLease & { readonly error: unknown }
  /** The engine stopped answering while a session was being closed. It keeps the remaining claims until their TTL ends. */
  'close-failed': {
    readonly backend: string
    readonly namespace: string
    /** Leases and queue positions that remain: an upper bound. */
    readonly left: number
    readonly expireWithinMs: number
    readonly error: unknown
  }
  'held-long': AboutLease & { readonly heldForMs: number }
  /** A lease was garbage collected without having been released; it is released now. */
  dropped: AboutLease
  /** Our own timer came late by more than the margin: the process was stopped or its event loop blocked. */
  paused: { readonly backend: string; readonly namespace: string; readonly lateByMs: number }
  /** The engine says another while our clock says ours. */
  'dual-owner-suspected': AboutLease & { readonly reason: LossReason; readonly remainingMs: number }
  /** A backend has found something about its engine that can cost guarantees, or something else has met a failure that no callback hears; it goes on. */
  warning: {
    readonly backend: string
    readonly namespace: string
    readonly code: WarningCode
    readonly warning: string
  }
  /** Tasks of this process take names in orders that can deadlock. Told by lockers of `watchLockOrder`, once for each set of names. */
  'lock-order': {
    readonly backend: string
    readonly namespace: string
    readonly holder: string
    /** Each asks for the name that the next one holds, and the last for that of the first. */
    readonly orders: readonly LockOrder[]
  }
  'force-released': AboutName & { readonly reason: string; readonly count: number }
  'guard-accepted': { readonly guard: string; readonly name: string; readonly token: bigint }
  'guard-refused': {
    readonly guard: string
    /** `null` with `invalid`: nothing in a text that was not verified is to be believed. */
    readonly name: string | null
    readonly token: bigint | null
    readonly reason: 'stale' | 'foreign' | 'used' | 'invalid' | 'lost'
    readonly highest: bigint | null
  }
  /** A call of `idempotent` has ended; `name` is its scope. */
  idempotent: {
    readonly name: string
    readonly outcome: 'done' | 'replayed' | 'taken-over' | 'key-reused' | 'timed-out' | 'failed'
    readonly tookMs: number
  }
  optimistic: { readonly outcome: 'updated' | 'conflict'; readonly attempts: number }
  /** A worker has ended a job; `name` is its queue. `set-aside`: its last start failed. */
  job: {
    readonly name: string
    readonly outcome: 'done' | 'retried' | 'set-aside'
    readonly starts: number
  }
  /** A schedule's start of a tick has ended here, or none was started. `tick`: its scheduled time, null if none was started. */
  tick: {
    readonly backend: string
    readonly namespace: string
    readonly name: string
    readonly outcome: TickOutcome
    readonly tick: string | null
    readonly lateByMs: number
    readonly tookMs: number
  }
  leadership: AboutName & {
    /** The id of the term's lease. */
    readonly id: string
    readonly phase: 'began' | 'ended'
    /** How it ended: null while it has not. */
    readonly reason: LossReason | 'resigned' | 'stopped' | 'work-ended' | 'work-failed' | null
  }
}

/**
 * The outcome of a tick for this replica. `left`: another one runs it or has run it, or it was passed over. `error`: the engine or
 * the record refused; `onError` has been told. `stopped`: the schedule was closed.
 */
export type TickOutcome = 'ran' | 'failed' | 'set-aside' | 'left' | 'error' | 'stopped'

/**
 * Codes that editors offer. An engine adds its own in its `index.ts`:
 * `declare module '../../../base/events.ts' { interface WarningCodes { HOLDFAST_ACME_CLOCK: true } }`.
 */
export interface WarningCodes {
  HOLDFAST_DROPPED: true
  HOLDFAST_HTTP: true
  HOLDFAST_PARTITIONS: true
  HOLDFAST_SCHEDULE: true
  HOLDFAST_TELEMETRY: true
  HOLDFAST_TTL: true
}

/** A warning's subject. Without a listener it goes to the process, and `node --disable-warning=<code>` silences it. */
export type WarningCode = keyof WarningCodes | (string & {})

export type EventKind = keyof HoldfastEvents

/**
 * In which context listeners are called. What a call did is told in its caller's context, so that it can be traced. What happens
 * to a lease by itself may be found out in any context, and is told in a neutral one.
 */
const kinds: Readonly<Record<EventKind, 'caller' | 'neutral'>> = {
  waiting: 'neutral',
  acquired: 'caller',
  busy: 'caller',
  'timed-out': 'caller',
  failed: 'caller',
  renewed: 'neutral',
  'renewal-failed': 'neutral',
  jeopardy: 'neutral',
  lost: 'neutral',
  released: 'caller',
  'release-failed': 'caller',
  'close-failed': 'neutral',
  'held-long': 'neutral',
  dropped: 'neutral',
  paused: 'neutral',
  'dual-owner-suspected': 'neutral',
  warning: 'neutral',
  'lock-order': 'caller',
  'force-released': 'caller',
  'guard-accepted': 'caller',
  'guard-refused': 'caller',
  idempotent: 'caller',
  optimistic: 'caller',
  job: 'caller',
  tick: 'neutral',
  leadership: 'neutral',
}

/** Every kind there is. */
export const eventKinds = Object.keys(kinds) as readonly EventKind[]

const channels = Object.fromEntries(
  eventKinds.map((kind) => [kind, channel(`holdfast:${kind}`)]),
) as Readonly<Record<EventKind, Channel<unknown>>>

/** Ask first where making the event costs something. */
export function hasListeners(kind: EventKind): boolean {
  return channels[kind].hasSubscribers
}

export function emit<K extends EventKind>(kind: K, event: HoldfastEvents[K]): void {
  const to = channels[kind]
  tokensAsText(event)
  if (kinds[kind] === 'caller') to.publish(event)
  else inNeutralContext(() => to.publish(event))
}

/** How an acquiring call ended that threw, and not because its time was over. */
export function outcomeOfFailure(
  error: unknown,
  signal: AbortSignal | undefined,
): HoldfastEvents['failed']['outcome'] {
  const isAborted = signal?.aborted && error === signal.reason
  if (isAborted || isHoldfastError(error, 'CLOSED')) return 'cancelled'
  return isHoldfastError(error, 'QUEUE_FULL') ? 'queue-full' : 'failed'
}

/** Listeners that count warnings and show them to nobody, so that the process is warned all the same. */
export const warningCounters = new Set<(event: HoldfastEvents['warning']) => void>()

function count(event: HoldfastEvents['warning']): void {
  for (const counter of warningCounters) callSafely(() => counter(event))
}

const toldToProcess = new Set<WarningCode>()

/** A dangerous set-up must not go unnoticed: without a listener it becomes a warning of the process, once for each code. */
export function warn(event: HoldfastEvents['warning']): void {
  if (!hasListeners('warning') && toldToProcess.has(event.code)) count(event)
  else {
    if (!hasListeners('warning')) toldToProcess.add(event.code)
    warnAgain(event, 'It is not repeated.')
  }
}

/** The same for a failure: each of them is told. `remark`: what a warning of the process says besides. */
export function warnAgain(event: HoldfastEvents['warning'], remark = ''): void {
  count(event)
  if (hasListeners('warning')) {
    emit('warning', event)
    return
  }
  const { backend, code, warning } = event
  const detail = `${remark} Silence it with node --disable-warning=${code}, or listen to it with onEvent('warning', …).`
  // Not every runtime has all of Node's `process`.
  inNeutralContext(() => process.emitWarning?.(`${backend}: ${warning}.`, { code, detail: detail.trim() }))
}

/** Listens to one kind of event from every locker and guard of the process; call the result to stop. */
export function onEvent<K extends EventKind>(
  kind: K,
  listener: (event: HoldfastEvents[K]) => void,
): () => void {
  checkOneOf('kind', kind, eventKinds)
  const subscription = (event: unknown) => listener(event as HoldfastEvents[K])
  channels[kind].subscribe(subscription)
  return () => void channels[kind].unsubscribe(subscription)
}
