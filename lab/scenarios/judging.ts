/** Makes one history of what the clients and the harness have noted, and has it checked. */
import type { BackendInfo } from '../../packages/holdfast/src/spi.ts'
import {
  assemble,
  checkAll,
  type Exception,
  type History,
  type HistoryEvent,
  mergeEvents,
  type Report,
} from '../check/index.ts'
import type { Crew } from './crew.ts'
import type { Note } from './messages.ts'

export interface Surroundings {
  /** What the harness has noted when all was over. */
  readonly notes: Note[]
  readonly info: BackendInfo
  readonly lagMs: number
}

export function toHistory({ notes, stops, startedAt }: Crew, surroundings: Surroundings): History {
  const { notes: atTheEnd, info, lagMs } = surroundings
  const harness: Note[] = stops.flatMap(({ client, from, until }) => [
    { kind: 'fault', what: 'pause', phase: 'began', process: client, at: from } as const,
    { kind: 'fault', what: 'pause', phase: 'ended', process: client, at: until } as const,
  ])
  const sources = [...notes.values(), [...harness, ...atTheEnd]].map((each) => inOrder(each, startedAt))
  const { name: backend, issuer, fencing, waiting, expirySlackMs } = info
  const about = { kind: 'about', version: 1, backend, issuer, fencing, waiting, expirySlackMs } as const
  const events = mergeEvents(sources)
  const plain = assemble(about, events)
  // On a machine that is busy, a round trip is what one has cost there and then.
  return assemble({ ...about, roundTripMs: slowestRelease(plain) + lagMs }, events)
}

/** What a guard decided is noted when it is committed, but happened before that. */
function inOrder(notes: readonly Note[], startedAt: number): HistoryEvent[] {
  return notes
    .toSorted((one, other) => one.at - other.at)
    .map((note, seq) => ({ ...shifted(note, startedAt), seq }) as HistoryEvent)
}

const times = ['at', 'sentAt', 'askedAt', 'believedUntil']

/** Counted from the start of the run, its times can be read by people. */
function shifted(note: Note, startedAt: number): Note {
  const fields = Object.entries(note).map(([key, value]) => [
    key,
    times.includes(key) ? value - startedAt : value,
  ])
  return Object.fromEntries(fields)
}

function slowestRelease({ operations, faults }: History): number {
  const stopped = new Set(faults.map(({ process }) => process))
  const all = operations.filter(({ op, outcome }) => op === 'release' && outcome === 'ok')
  return all
    .filter(({ process }) => !stopped.has(process))
    .reduce((most, { at, returnedAt }) => Math.max(most, returnedAt - at), 0)
}

/** The control is there to lose updates, and has no guard. The lock has to be as good as ever. */
const ofControl: readonly Exception[] = [
  { check: 'lost-updates', status: 'violated', why: 'the control has no guard' },
  { check: 'G5', status: 'not-judged', why: 'the control has no guard' },
]

export function judge(history: History, guarded: boolean): Report {
  // Two readings of the clock by one process, of which one went through the library.
  return checkAll(history, { except: guarded ? [] : ofControl, toleranceMs: 1 })
}
