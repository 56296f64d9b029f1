/** What the holder of the lease does next, from the record alone. Pure. */
import type { TickRecord } from './record.ts'
import { type NextTick, ticksBetween } from './times.ts'

export interface Rules {
  readonly policy: 'skip' | 'rerun'
  readonly missed: 'skip' | 'last' | 'all'
  readonly overrun: 'skip' | 'wait'
  readonly maxStarts: number
  readonly maxMissed: number
}

/** What a replica asks for. */
export interface Asked {
  /** The latest tick that is due. */
  readonly tick: number
  /** It became due while this replica was up. Otherwise it may have been missed. */
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

/** What is due and was never started, in order. */
function dueTicks(record: TickRecord, { tick, isOnTime, next }: Asked, rules: Rules): number[] {
  if (tick <= record.tick) return []
  const { missed, overrun, maxMissed } = rules
  const candidates =
    missed === 'all' && next !== undefined ? ticksBetween(next, record.tick, tick, maxMissed) : [tick]
  return candidates.filter((each) => {
    if (each > record.since && each <= (record.until ?? 0)) return overrun === 'wait'
    return missed !== 'skip' || (isOnTime && each === tick)
  })
}
