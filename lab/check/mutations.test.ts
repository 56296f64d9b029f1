/** Long good histories with one event damaged: the check that is responsible must notice. */
import { expect, test } from 'vitest'
import { assemble } from './assemble.ts'
import { checkAll } from './check-all.ts'
import type { CheckId } from './findings.ts'
import type { EngineEvent, HistoryEvent } from './history.ts'
import { Random } from './testing/random.ts'
import { type Simulated, simulate } from './testing/simulate.ts'
import { numbered } from './testing/views.ts'

/** Damages one event in place; false if this history has none of the kind. */
type Damage = (events: HistoryEvent[], random: Random) => boolean

const damages: readonly { readonly what: string; readonly caughtBy: CheckId; readonly damage: Damage }[] = [
  {
    what: 'an end that the engine forgot',
    caughtBy: 'G1',
    damage: (events, random) => {
      // The last end of a name is missed by nobody.
      const index = pick(
        events,
        random,
        (event, place) => isEngine(event, 'released') && place < events.length * 0.9,
      )
      return index >= 0 && events.splice(index, 1).length === 1
    },
  },
  { what: 'two grants whose tokens were swapped', caughtBy: 'G2', damage: swapTokens },
  {
    what: 'a token that one client got wrong',
    caughtBy: 'G2',
    damage: change(
      (event) => event.kind === 'return' && event.token !== undefined,
      (event) => ({ ...event, token: 10_000_000n }),
    ),
  },
  {
    what: 'a reading that says "held" long after the end',
    caughtBy: 'G3',
    damage: (events, random) => {
      const index = pick(
        events,
        random,
        (event, place) => event.kind === 'belief' && event.what === 'ended' && place < events.length - 60,
      )
      const event = events[index]
      const later = events[index + 50]
      if (event?.kind !== 'belief' || later === undefined) return false
      events.splice(index + 51, 0, {
        kind: 'belief',
        what: 'seen',
        leaseId: event.leaseId,
        seq: 0,
        at: later.at,
      })
      return true
    },
  },
  {
    what: 'a belief that lasts into the next one',
    caughtBy: 'G3',
    damage: (events, random) => {
      const index = pick(
        events,
        random,
        (event, place) => event.kind === 'belief' && event.what === 'ended' && place < events.length - 900,
      )
      const [event] = index < 0 ? [] : events.splice(index, 1)
      const later = events[index + 800]
      if (event?.kind !== 'belief' || event.what !== 'ended' || later === undefined) return false
      events.splice(index + 801, 0, { ...event, at: later.at })
      return true
    },
  },
  {
    what: 'a refusal that was an acceptance',
    caughtBy: 'G5',
    damage: change(
      (event) => event.kind === 'guard' && event.verdict === 'refused',
      (event) => ({ ...event, verdict: 'accepted' }) as HistoryEvent,
    ),
  },
  {
    what: 'an attempt that nobody wants any more, and that stays',
    caughtBy: 'G6',
    damage: (events, random) => {
      const abandoned = new Set(
        events.flatMap((event) => (event.kind === 'invoke' && event.op === 'abandon' ? [event.leaseId] : [])),
      )
      const index = pick(events, random, (event, place) => {
        const left = isEngine(event, 'left') || isEngine(event, 'released') || isEngine(event, 'expired')
        return left && abandoned.has((event as EngineEvent).leaseId) && place < events.length * 0.9
      })
      return index >= 0 && events.splice(index, 1).length === 1
    },
  },
  {
    what: 'a release that hits somebody else',
    caughtBy: 'G7',
    damage: (events, random) => {
      const index = pick(events, random, (event) => isEngine(event, 'granted'))
      const event = events[index]
      if (event === undefined) return false
      events.splice(index + 1, 0, { ...event, what: 'released' } as HistoryEvent)
      return wasAcquired(events, event)
    },
  },
  {
    what: 'two places in line that were swapped',
    caughtBy: 'G8',
    damage: (events, random) => {
      const places = waitingTogether(events)
      const [first, second] = places[random.below(places.length)] ?? []
      const [one, other] = [events[first ?? -1], events[second ?? -1]]
      if (one === undefined || other === undefined || first === undefined || second === undefined)
        return false
      events[first] = { ...other, at: one.at }
      events[second] = { ...one, at: other.at }
      return true
    },
  },
  {
    what: 'a waiter that was served much too late',
    caughtBy: 'G10',
    damage: (events, random) => {
      const index = pick(events, random, (event) => isEngine(event, 'released'))
      // Everything after it happens a second later.
      if (index < 0 || !somebodyWaits(events, index)) return false
      for (let later = index + 1; later < events.length; later++)
        events[later] = postponed(events[later], 1_000)
      return true
    },
  },
  {
    what: 'a grant before the holder’s time was up',
    caughtBy: 'G13',
    damage: (events, random) => {
      const index = pick(events, random, (event) => event.kind === 'belief' && event.what === 'began')
      const belief = events[index]
      if (belief?.kind !== 'belief') return false
      const thief = {
        kind: 'engine',
        what: 'granted',
        name: 'name 0',
        leaseId: 'thief',
        seq: 0,
        at: belief.at,
      } as const
      events.splice(index + 1, 0, thief)
      return true
    },
  },
  {
    what: 'an acknowledged update that is not there',
    caughtBy: 'lost-updates',
    damage: change(
      (event) => event.kind === 'return' && event.outcome === 'fail' && event.error === 'stale',
      (event) => ({ ...event, outcome: 'ok' }) as HistoryEvent,
    ),
  },
  {
    what: 'two acquires whose tokens were swapped',
    caughtBy: 'linearizability',
    damage: swapTokensOfClients,
  },
  {
    what: 'a release that was told to two',
    caughtBy: 'linearizability',
    damage: change(
      (event) => event.kind === 'return' && event.error === 'not held',
      (event) => ({ ...event, outcome: 'ok' }) as HistoryEvent,
    ),
  },
]

const simulated = [11, 12, 13].map((seed) => simulate({ seed, clients: 5, operations: 900, faults: 0.03 }))

test.each(damages)('$caughtBy notices $what', ({ caughtBy, damage }) => {
  const random = new Random(7)
  let damaged = 0
  for (const good of simulated)
    for (let round = 0; round < 4; round++) {
      const history = damagedBy(damage, good, random)
      if (history === null) continue
      damaged++
      const [result] = checkAll(history, { only: [caughtBy] }).checks
      expect(result?.status).toBe('violated')
    }
  expect(damaged).toBeGreaterThanOrEqual(6)
})

function damagedBy(damage: Damage, { about, events }: Simulated, random: Random) {
  const copy = [...events]
  return damage(copy, random) ? assemble(about, numbered(copy)) : null
}

function pick(
  events: readonly HistoryEvent[],
  random: Random,
  fits: (event: HistoryEvent, index: number) => boolean,
): number {
  const indexes = events.flatMap((event, index) => (fits(event, index) ? [index] : []))
  return indexes.length === 0 ? -1 : random.pick(indexes)
}

function change(fits: (event: HistoryEvent) => boolean, into: (event: HistoryEvent) => HistoryEvent): Damage {
  return (events, random) => {
    const index = pick(events, random, fits)
    const event = events[index]
    if (event === undefined) return false
    events[index] = into(event)
    return true
  }
}

function isEngine(event: HistoryEvent | undefined, what: EngineEvent['what']): boolean {
  return event?.kind === 'engine' && event.what === what
}

function swapTokens(events: HistoryEvent[], random: Random): boolean {
  const first = pick(
    events,
    random,
    (event, place) => isEngine(event, 'granted') && place < events.length * 0.9,
  )
  const second = events.findIndex((event, index) => index > first && isEngine(event, 'granted'))
  return swapTokensAt(events, first, second)
}

function swapTokensOfClients(events: HistoryEvent[], random: Random): boolean {
  const acquired = (event: HistoryEvent) => event.kind === 'return' && event.token !== undefined
  const first = pick(events, random, (event, place) => acquired(event) && place < events.length * 0.9)
  const second = events.findIndex((event, index) => index > first && acquired(event))
  return swapTokensAt(events, first, second)
}

function swapTokensAt(events: HistoryEvent[], first: number, second: number): boolean {
  const [one, other] = [events[first], events[second]]
  if (one === undefined || other === undefined || !('token' in one) || !('token' in other)) return false
  events[first] = { ...one, token: other.token } as HistoryEvent
  events[second] = { ...other, token: one.token } as HistoryEvent
  return true
}

function wasAcquired(events: readonly HistoryEvent[], granted: HistoryEvent): boolean {
  const leaseId = granted.kind === 'engine' ? granted.leaseId : undefined
  return events.some(
    (event) => event.kind === 'belief' && event.what === 'began' && event.leaseId === leaseId,
  )
}

/** Pairs of neighbours in line that were both granted later. */
function waitingTogether(events: readonly HistoryEvent[]): [number, number][] {
  const pairs: [number, number][] = []
  const line: number[] = []
  for (const [index, event] of events.entries()) {
    if (event.kind !== 'engine') continue
    if (event.what === 'enqueued') line.push(index)
    const place = line.findIndex((each) => (events[each] as EngineEvent).leaseId === event.leaseId)
    if (event.what === 'granted' && place === 0 && line.length > 1) pairs.push([line[0] ?? 0, line[1] ?? 0])
    if (event.what === 'granted' || event.what === 'left') line.splice(place, 1)
  }
  return pairs
}

function somebodyWaits(events: readonly HistoryEvent[], index: number): boolean {
  const next = events.findIndex((event, place) => place > index && isEngine(event, 'granted'))
  const granted = events[next]
  const leaseId = granted?.kind === 'engine' ? granted.leaseId : undefined
  const enqueued = events.findIndex(
    (event) => isEngine(event, 'enqueued') && (event as EngineEvent).leaseId === leaseId,
  )
  return granted !== undefined && enqueued >= 0 && enqueued < index && wasAcquired(events, granted)
}

function postponed(event: HistoryEvent | undefined, byMs: number): HistoryEvent {
  const late = { ...event, at: (event?.at ?? 0) + byMs } as HistoryEvent
  return late.kind === 'belief' && 'sentAt' in late ? { ...late, sentAt: late.sentAt + byMs } : late
}
