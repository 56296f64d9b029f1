/**
 * The table of all metrics. Each output is a loop over it, so two outputs cannot disagree on a name, a label or a number.
 * Names of locks, holders, tokens and ids are never labels: their number has no bound.
 */
import type { EventKind, HoldfastEvents } from '../base/events.ts'

/** The part that an event has in a metric. */
export interface Sample {
  /** Seconds of a histogram, or how much a counter goes up: 1 if absent. */
  readonly value?: number
  /** Value of the first label, if it is not a field of the event. */
  readonly as?: string | undefined
  /** Of a gauge: this id is open from now on, or not any more. It counts those that are open. */
  readonly opens?: string
  readonly closes?: string
  /** The event has a part in the metric only if this id is open. */
  readonly ifOpen?: string
}

type Feeds = { readonly [K in EventKind]?: (event: HoldfastEvents[K]) => Sample | undefined }
/** A histogram is called after its buckets. */
type Kind = 'counter' | 'gauge' | 'waits' | 'holds'

export interface Metric {
  /** `acquire` is `holdfast.acquire`, and `holdfast_acquire_seconds` for Prometheus. */
  readonly name: string
  readonly kind: Kind
  readonly labels: readonly string[]
  readonly help: string
  readonly feeds: Feeds
}

/** Upper bounds in seconds: 1 ms to 60 s, and 10 ms to 1 h. */
export const defaultBuckets = {
  waits: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
  holds: [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600],
} as const

export function prometheusName({ name, kind }: Metric): string {
  if (kind === 'gauge') return `holdfast_${name}`
  return `holdfast_${name}_${kind === 'counter' ? 'total' : 'seconds'}`
}

const metric = (name: string, kind: Kind, labels: string, help: string, feeds: Feeds): Metric => ({
  name,
  kind,
  labels: labels.split(' ').filter((label) => label !== ''),
  help,
  feeds,
})
const took = (ms: number, as?: string): Sample => ({ value: ms / 1_000, as })
const once = (): Sample => ({})
const closesLease = ({ id }: { readonly id: string }): Sample => ({ closes: id })
/** A leader's term is as long as its lease, and not the same. */
const termOf = (id: string) => `term ${id}`
const closesAttempt = ({ attemptId }: { readonly attemptId: string }): Sample => ({ closes: attemptId })

const ofLocker = 'backend namespace'
const ofName = 'backend namespace group'

export const metrics: readonly Metric[] = [
  metric(
    'acquire',
    'waits',
    `outcome mode ${ofName}`,
    'Acquiring calls with their wait, by how they ended.',
    {
      acquired: ({ waitedMs }) => took(waitedMs, 'granted'),
      busy: ({ waitedMs }) => took(waitedMs, 'busy'),
      'timed-out': ({ waitedMs }) => took(waitedMs, 'timed-out'),
      failed: ({ final, waitedMs }) => (final ? took(waitedMs) : undefined),
    },
  ),
  // Before the gauge, which closes the id.
  metric('hold', 'holds', `ended ${ofName}`, 'How long leases were held, by how they ended.', {
    released: ({ id, heldForMs }) => ({ value: heldForMs / 1_000, as: 'released', ifOpen: id }),
    lost: ({ id, heldForMs }) => ({ value: heldForMs / 1_000, as: 'lost', ifOpen: id }),
  }),
  metric('held', 'gauge', ofName, 'Leases that this process holds.', {
    acquired: ({ id }) => ({ opens: id }),
    released: closesLease,
    lost: closesLease,
  }),
  metric('waiting', 'gauge', ofName, 'Acquiring calls of this process that wait.', {
    waiting: ({ attemptId }) => ({ opens: attemptId }),
    acquired: closesAttempt,
    'timed-out': closesAttempt,
    failed: ({ final, attemptId }) => (final ? { closes: attemptId } : undefined),
  }),
  metric('renewals', 'counter', `outcome ${ofLocker}`, 'Keep-alives; one serves all leases of a session.', {
    renewed: () => ({ as: 'renewed' }),
    'renewal-failed': () => ({ as: 'failed' }),
  }),
  metric('renewal', 'waits', `outcome ${ofLocker}`, 'How long keep-alives took.', {
    renewed: ({ tookMs }) => took(tookMs, 'renewed'),
    'renewal-failed': ({ tookMs }) => took(tookMs, 'failed'),
  }),
  metric('lost', 'counter', `reason ${ofName}`, 'Leases that ended before they were released.', {
    lost: once,
  }),
  metric('jeopardy', 'counter', ofName, 'Leases whose renewal was late.', { jeopardy: once }),
  metric('held_long', 'counter', ofName, 'Leases that were held for warnHoldMs.', { 'held-long': once }),
  metric('dual_owner_suspected', 'counter', ofName, 'Leases that another client had by the engine’s word.', {
    'dual-owner-suspected': once,
  }),
  metric('dropped', 'counter', ofName, 'Leases that were garbage collected unreleased.', { dropped: once }),
  metric('release_failed', 'counter', ofName, 'Releases that the engine did not confirm.', {
    'release-failed': once,
  }),
  metric('force_released', 'counter', ofName, 'Holders that an operator released through this process.', {
    'force-released': ({ count }) => ({ value: count }),
  }),
  metric('paused', 'waits', ofLocker, 'How late timers came: the process stood still.', {
    paused: ({ lateByMs }) => took(lateByMs),
  }),
  metric('warnings', 'counter', `code ${ofLocker}`, 'Warnings about engines and recipes.', { warning: once }),
  metric('guard', 'counter', 'outcome guard', 'Fences that guards accepted or refused.', {
    'guard-accepted': () => ({ as: 'accepted' }),
    'guard-refused': ({ reason }) => ({ as: reason }),
  }),
  metric('idempotent', 'counter', 'outcome group', 'Calls of idempotent.', { idempotent: once }),
  metric('optimistic', 'counter', 'outcome', 'Optimistic updates.', { optimistic: once }),
  metric('jobs', 'counter', 'outcome group', 'Starts of jobs that have ended.', { job: once }),
  metric('ticks', 'counter', `outcome ${ofName}`, 'Ticks of schedules on this replica.', { tick: once }),
  metric('leader', 'gauge', ofName, 'Elections in which this process leads.', {
    leadership: ({ id, phase }) => (phase === 'began' ? { opens: termOf(id) } : { closes: termOf(id) }),
    released: ({ id }) => ({ closes: termOf(id) }),
    lost: ({ id }) => ({ closes: termOf(id) }),
  }),
]
