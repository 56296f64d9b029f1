/**
 * Makes one history of what the clients and the harness have noted, and has it checked.
 *
 * Where a scenario breaks what the engine assumes, the engine must have said so in `info.assumptions`, and then exactly
 * this is expected: a lease that was held at that moment may be given to another before its time, so two may believe at
 * once. Every violation that is not about such a lease counts, and so does everything else: tokens, the guard, updates.
 */
import type { BackendInfo } from '../../packages/holdfast/src/spi.ts'
import {
  assemble,
  type CheckId,
  type CheckResult,
  checkAll,
  type Exception,
  type History,
  type HistoryEvent,
  mergeEvents,
  type Report,
  type Violation,
} from '../check/index.ts'
import type { Crew } from './crew.ts'
import type { Note } from './messages.ts'
import type { Protection } from './resources/resource.ts'

export interface Surroundings {
  /** Notes that the harness has taken when all was over. */
  readonly notes: Note[]
  readonly info: BackendInfo
  readonly lagMs: number
  readonly ttlMs: number
}

export function toHistory({ notes, incidents, startedAt }: Crew, surroundings: Surroundings): History {
  const { notes: atTheEnd, info, lagMs, ttlMs } = surroundings
  const harness = [...incidents.notes(), ...atTheEnd]
  const sources = [...notes.values(), harness].map((each) => inOrder(each, startedAt))
  const { name: backend, issuer, fencing, waiting } = info
  const expirySlackMs = info.expirySlackMs(ttlMs)
  const about = { kind: 'about', version: 1, backend, issuer, fencing, waiting, expirySlackMs } as const
  const events = mergeEvents(sources)
  const plain = assemble(about, events)
  // On a machine that is busy, a round trip is what one has cost there and then.
  return assemble({ ...about, roundTripMs: slowestRelease(plain) + lagMs }, events)
}

/** A guard's decision is noted when it is committed, but happened before that. */
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

export interface Circumstances {
  readonly protection: Protection
  readonly info: Pick<BackendInfo, 'fencing' | 'waiting'>
  /** When what the engine assumes was made untrue, in the time of the history; null if it was true all the time. */
  readonly brokenAt: readonly number[] | null
}

export function judge(history: History, { protection, info, brokenAt }: Circumstances): Report {
  const except = [...ofProtection[protection], ...ofEngine(info), ...(brokenAt === null ? [] : ofBroken)]
  // Two readings of the clock by one process, of which one went through the library.
  const report = checkAll(history, { except, toleranceMs: 1 })
  if (brokenAt === null) return report
  const robbed = heldAt(history, brokenAt)
  return { ...report, checks: report.checks.map((check) => withoutPretext(check, robbed)) }
}

/** The control is there to lose updates. The lock has to be as good as ever. */
const ofProtection: { readonly [Each in Protection]: readonly Exception[] } = {
  none: [
    { check: 'lost-updates', status: 'violated', why: 'the control trusts the lock alone' },
    { check: 'G5', status: 'not-judged', why: 'the control trusts the lock alone' },
  ],
  guard: [],
  'compare-and-set': [{ check: 'G5', status: 'not-judged', why: 'the resource compares by itself' }],
}

function ofEngine({ fencing, waiting }: Circumstances['info']): Exception[] {
  const except: Exception[] = []
  if (fencing === 'unfenced')
    except.push({ check: 'G2', status: 'not-judged', why: 'the engine issues no tokens' })
  if (waiting !== 'queue')
    except.push({ check: 'G8', status: 'not-judged', why: 'the engine keeps no queue' })
  return except
}

/** The rules that break when the engine gives a name away before its holder's time is up. */
const givenAwayEarly: readonly CheckId[] = ['G1', 'G3', 'G7', 'G13', 'linearizability']

const assumptionBroken = 'what the engine assumes was made untrue on purpose'

const ofBroken: readonly Exception[] = givenAwayEarly.map((check) => ({
  check,
  status: 'violated',
  why: assumptionBroken,
}))

function heldAt({ beliefs }: History, moments: readonly number[]): ReadonlySet<string> {
  const held = beliefs.filter((belief) =>
    moments.some((at) => belief.at <= at && at <= (belief.ended?.at ?? Infinity)),
  )
  return new Set(held.map(({ leaseId }) => leaseId))
}

/** The exception covers what befell these leases, and nothing else. */
function withoutPretext(result: CheckResult, robbed: ReadonlySet<string>): CheckResult {
  if (result.exception?.why !== assumptionBroken) return result
  const unexcused = result.violations.filter((violation) => !isAbout(violation, robbed))
  return unexcused.length === 0 ? result : { ...result, violations: unexcused, exception: null }
}

function isAbout(violation: Violation, robbed: ReadonlySet<string>): boolean {
  const { check, involved, message } = violation
  // A lease that believes for longer than its own clock allows, or is revived, has no excuse in what others did.
  if (check === 'G3' && involved.length < 2) return false
  return [...robbed].some((lease) => involved.includes(lease) || message.includes(lease))
}

/** How often a client began to believe while another still did. */
export function timesTwoBelieved({ checks }: Report): number {
  const belief = checks.find(({ check }) => check === 'G3')
  return belief?.violations.filter(({ involved }) => involved.length > 1).length ?? 0
}
