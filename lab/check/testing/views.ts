/** The same run, seen with less: as it is recorded where the engine tells nothing, or tells it late. */
import { assemble } from '../assemble.ts'
import type { History, HistoryEvent } from '../history.ts'
import type { Random } from './random.ts'
import type { Simulated } from './simulate.ts'

export function withoutEngine({ about, events }: Simulated): History {
  const { engineTimes: _exact, ...rest } = about
  return assemble(rest, numbered(events.filter(({ kind }) => kind !== 'engine')))
}

/** Each engine event is learnt some time after it happened, in order. */
export function seenLate({ about, events }: Simulated, random: Random): History {
  const { engineTimes: _exact, ...rest } = about
  let learntAt = -Infinity
  const stamped = events.map((event) => {
    if (event.kind !== 'engine') return event
    learntAt = Math.max(learntAt, event.at + random.between(0, 20))
    return { ...event, at: learntAt }
  })
  return assemble(rest, numbered(stamped.toSorted((one, other) => one.at - other.at)))
}

export function numbered(events: readonly HistoryEvent[]): HistoryEvent[] {
  return events.map((event, index) => ({ ...event, seq: index + 1 }))
}
