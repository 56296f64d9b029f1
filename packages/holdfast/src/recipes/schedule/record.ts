/**
 * The record by which replicas know of each other, in the data cell of the schedule's name, about the latest tick that was
 * started. Only the holder of the lease writes it, and its size is bounded.
 */
import { isHoldfastError, quote, UnsupportedError } from '../../base/errors.ts'
import { isTickTime } from './times.ts'

/**
 * started ──the job returned──▶ done
 * started ──the job threw──▶ failed ──started too often──▶ set-aside
 * started ──the runner is gone, and it was started too often──▶ set-aside
 *
 * With `rerun`, `started` and `failed` are unfinished: the next holder starts the tick again.
 */
export type TickState = 'started' | 'done' | 'failed' | 'set-aside'

/** After the first time and up to the second. */
export type Span = readonly [since: number, until: number]

export interface TickRecord {
  /** The scheduled time of the latest tick that was started. No earlier tick starts any more. */
  readonly tick: number
  readonly state: TickState
  /** How often it was started. A start that `close` has ended does not count. */
  readonly starts: number
  /** The token of the last start. */
  readonly token: string | null
  /** When its runner found it due, under the lease. What becomes due from then on and until it ends is an overrun. */
  readonly since: number
  /** With the pause after a job that threw. Null: it runs, or its runner died, and nothing says when it ended. */
  readonly until: number | null
  /** Runs before it in which later ticks became due, as while missed ticks are run. */
  readonly earlier: readonly Span[]
  /** The last few ticks that were set aside. */
  readonly setAside: readonly number[]
}

/** Keeps the record far below 4 KiB. */
const SET_ASIDE_KEPT = 20
const SPANS_KEPT = 20
const FORMAT = 'schedule/1'
const states: readonly unknown[] = ['started', 'done', 'failed', 'set-aside'] satisfies TickState[]

export function formatRecord(record: TickRecord): string {
  const { earlier, setAside } = record
  return JSON.stringify({
    holdfast: FORMAT,
    ...record,
    earlier: earlier.slice(-SPANS_KEPT),
    setAside: setAside.slice(-SET_ASIDE_KEPT),
  })
}

/** `undefined`: nothing was ever started. Throws `UNSUPPORTED` if another program keeps its own data under this name. */
export function parseRecord(name: string, data: string | undefined): TickRecord | undefined {
  if (data === undefined) return undefined
  try {
    const { holdfast, ...stored } = JSON.parse(data) as TickRecord & { holdfast: unknown }
    const record = { ...stored, earlier: stored.earlier ?? [] }
    if (holdfast === FORMAT && isRecord(record)) return record
    throw foreign(name, data)
  } catch (error) {
    throw isHoldfastError(error) ? error : foreign(name, data)
  }
}

function isRecord({ tick, state, starts, token, since, until, earlier, setAside }: TickRecord): boolean {
  return (
    isTickTime(tick) &&
    states.includes(state) &&
    Number.isSafeInteger(starts) &&
    starts >= 0 &&
    (token === null || typeof token === 'string') &&
    isTickTime(since) &&
    (until === null || isTickTime(until)) &&
    Array.isArray(earlier) &&
    earlier.every((span) => Array.isArray(span) && span.length === 2 && span.every(isTickTime)) &&
    Array.isArray(setAside) &&
    setAside.every(isTickTime)
  )
}

function foreign(name: string, data: string): UnsupportedError {
  return new UnsupportedError(
    `The data of ${quote(name)} is not the record of a schedule that this release knows, so no tick was started: ` +
      `${quote(data)}. Give the schedule a name of its own; or, if the data may go, call locker.forget(name) first.`,
  )
}
