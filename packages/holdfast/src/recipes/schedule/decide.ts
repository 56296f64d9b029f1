/** Decides what the holder of the lease does next, from the record alone. Pure. */
import type { Span, TickRecord } from './record.ts'
import { type NextTick, ticksBetween } from './times.ts'

export interface Rules {
  readonly policy: 'skip' | 'rerun'
  readonly missed: 'skip' | 'last' | 'all'
  readonly overrun: 'skip' | 'wait'
  readonly maxStarts: number
  readonly maxMissed: number
}

/** The tick that a replica asks about, and how it came to it. */
export interface Asked {
  /** The latest tick that is due. */
  readonly tick: number
  /** The tick became due while this replica was up. Otherwise it may have been missed. */
  readonly isOnTime: boolean
  /** To find missed ticks. Absent where the user's scheduler calls for one tick. */
  readonly next?: NextTick
}

export type Decision =
  | { readonly kind: 'leave' }
  | {
      readonly kind: 'start'
      readonly tick: number
      readonly starts: number
      /** Afterwards there may be more to do. */
      readonly more: boolean
    }
  | { readonly kind: 'set-aside'; readonly record: TickRecord }

export function decide(record: TickRecord | undefined, asked: Asked, rules: Rules): Decision {
  if (record === undefined) return asked.isOnTime ? start(asked.tick, false) : { kind: 'leave' }
  const { tick, state, starts } = record
  if (rules.policy === 'rerun' && (state === 'started' || state === 'failed')) {
    if (starts >= rules.maxStarts) return { kind: 'set-aside', record }
    return { kind: 'start', tick, starts: starts + 1, more: asked.tick > tick }
  }
  const [first, ...others] = dueTicks(record, asked, rules)
  return first === undefined ? { kind: 'leave' } : start(first, others.length > 0)
}

function start(tick: number, more: boolean): Decision {
  return { kind: 'start', tick, starts: 1, more }
}

/** Ticks that are due and were never started, in order. */
function dueTicks(record: TickRecord, { tick, isOnTime, next }: Asked, rules: Rules): number[] {
  if (tick <= record.tick) return []
  const { missed, overrun, maxMissed } = rules
  const candidates =
    missed === 'all' && next !== undefined ? ticksBetween(next, record.tick, tick, maxMissed) : [tick]
  const runs = runsOf(record)
  return candidates.filter((each) => {
    if (runs.some(([since, until]) => each > since && each <= until)) return overrun === 'wait'
    return missed !== 'skip' || (isOnTime && each === tick)
  })
}

function runsOf({ since, until, earlier }: TickRecord): readonly Span[] {
  return until === null ? earlier : [...earlier, [since, until]]
}

/**
 * The runs before the one that begins now, as far as later ticks became due in them. Runs with no tick between them are one.
 * Only runs that had the lease count: ticks that became due while a replica waited for it, because the engine was away or the
 * holder was dead, are no overruns (T97, falsely overrun ticks).
 */
export function earlierRuns(record: TickRecord | undefined, asked: Asked, tick: number): readonly Span[] {
  if (record === undefined) return []
  const runs = runsOf(record).filter(([, until]) => until > tick)
  const [before, last] = runs.slice(-2)
  if (before === undefined || last === undefined || isAnyDue(asked, before[1], last[0])) return runs
  return [...runs.slice(0, -2), [before[0], last[1]]]
}

function isAnyDue({ tick, next }: Asked, afterMs: number, untilMs: number): boolean {
  const due = next === undefined ? tick : next(afterMs)
  return due !== null && due > afterMs && due <= untilMs
}
