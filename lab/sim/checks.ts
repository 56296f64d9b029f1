/**
 * Checks at every step, against what the engine really has: exclusion, tokens,
 * belief, and that nothing is left behind. The histories are checked once more afterwards, by `lab/check`.
 */
import { elapsedMs } from '../../packages/holdfast/src/base/clock.ts'
import { defaultDriftMs } from '../../packages/holdfast/src/base/defaults.ts'
import type { Fence } from '../../packages/holdfast/src/base/fence.ts'
import { publicIdOf } from '../../packages/holdfast/src/base/ids.ts'
import type { AcquireRequest, Call } from '../../packages/holdfast/src/spi.ts'
import type { SimSession } from './backend.ts'
import { ClosedNames } from './closed-names.ts'
import type { EngineObserver } from './engine/engine.ts'
import { shortId } from './engine/messages.ts'
import {
  type ClaimState,
  type Ending,
  heldWeight,
  type NameState,
  type SessionState,
} from './engine/state.ts'
import { Leftovers } from './leftovers.ts'
import type { SimProcess } from './machine.ts'
import type { Versions } from './resource.ts'
import type { TrackedLease } from './tracked.ts'
import type { World } from './world.ts'

/** Ends that no client can foresee: until its next keep-alive only the guard protects (G3). */
const unforeseeable: ReadonlySet<Ending | undefined> = new Set(['forced', 'deleted'])
const ownEndings: ReadonlySet<Ending> = new Set(['closed', 'released', 'abandoned'])
/** A timer that was late by more than this was held back by something. */
const TIMER_GRACE_MS = 5

interface Ended {
  readonly ending: Ending
  readonly atMs: number
  readonly atEngineMs: number
  readonly session: SessionState
  /** Time that its client gave it at that moment: 0 once a clock was stepped forward, for one. */
  readonly ownLeftMs: number
}

export class Checks implements EngineObserver {
  readonly #world: World
  readonly #leftovers: Leftovers
  readonly #closedNames: ClosedNames
  readonly #leases = new Map<string, Set<TrackedLease>>()
  /** By the token of the grant: an attempt can be granted twice (T84, late duplicates). */
  readonly #endings = new Map<bigint, Ended>()
  /** The last grant of each attempt, by public id: permits do not show theirs. */
  readonly #tokens = new Map<string, bigint>()
  /** When a holder of a name last ended: a grant in the same moment is a hand-over. */
  readonly #endedAtMs = new Map<string, number>()
  readonly #openings = new Map<string, AbortSignal>()
  #lastToken = 0n
  grants = 0
  handOvers = 0

  constructor(world: World) {
    this.#world = world
    this.#leftovers = new Leftovers(world)
    this.#closedNames = new ClosedNames(world)
  }

  // --- what clients tell -----------------------------------------------------------------------------------

  /** The first request opens the session, and the others wait for it (T22, concurrent first acquires). */
  opening(address: string, ttlMs: number, call: Call): { over: () => void } {
    const key = `${address}/${ttlMs}`
    const before = this.#openings.get(key)
    if (before !== undefined && !before.aborted)
      this.#world.fail('T22', `${address} opens two sessions of ${ttlMs} ms at once`)
    this.#openings.set(key, call.signal)
    return { over: () => void this.#openings.delete(key) }
  }

  askedFor(request: AcquireRequest, call: Call, session: SimSession, process: SimProcess): void {
    this.#leftovers.askedFor(request, call, session, process)
  }

  /** This attempt has no caller any more. */
  answered(attempt: string): void {
    this.#leftovers.answered(attempt)
  }

  handedOut(lease: TrackedLease): void {
    const leases = this.#leases.get(lease.name) ?? new Set()
    for (const other of leases)
      if (other.id === lease.id && !other.isOver)
        this.#world.fail('G1', `${shortId(lease.id)} on ${lease.name} is in two hands at once`)
    this.#leases.set(lease.name, leases.add(lease))
    this.#leftovers.handedOut(lease)
    lease.onAbort = () => {
      this.#mustBeLost(lease)
      this.#closedNames.lost(lease)
    }
    if (!this.believes(lease))
      this.#world.fail('T6', `lease ${shortId(lease.id)} on ${lease.name} was over when it was handed out`)
  }

  /** The record of a lease that was handed out, and may still be used. */
  trackedLease({ name, id }: { readonly name: string; readonly id: string }): TrackedLease | undefined {
    for (const lease of this.#leases.get(name) ?? []) if (lease.id === id) return lease
    return undefined
  }

  /** Whether the engine has granted a name to this lease under this token, now or before. */
  wasGranted(id: string, token: bigint): boolean {
    return this.#tokens.get(id) === token
  }

  /** Its client is about to give it back. */
  releasing(lease: TrackedLease): void {
    if (lease.isOver) return
    lease.releasedAtMs = this.#world.nowMs
    this.#closedNames.released(lease)
  }

  readTwice(fence: Fence, first: Versions, second: Versions): void {
    if (first.guarded === null || second.guarded === null) return
    this.#world.count('read twice')
    if (first.guarded === second.guarded) return
    this.#world.fail(
      'G5',
      `a reader of ${fence.name} with token ${fence.token} passed the guard before and after a writer`,
    )
  }

  /** Whether the client may act under this lease now; if it thinks so, the engine must agree (G3). */
  believes(lease: TrackedLease): boolean {
    if (!this.#ask(lease)) return false
    if (lease.overdueMs > 1) this.#heldTooLong(lease)
    const end = this.#endOf(lease)
    if (end !== undefined && !unforeseeable.has(end.ending)) this.#believesTooLong(lease, end.ending)
    return true
  }

  /** As code does that goes on after a long computation: it looks at its leases before any timer has run. */
  askAllOf(process: SimProcess): void {
    for (const leases of this.#leases.values())
      for (const lease of leases) if (lease.process === process && !lease.isOver) this.believes(lease)
  }

  #endOf(lease: TrackedLease): Ended | undefined {
    const token = lease.token ?? this.#tokens.get(lease.id)
    return token === undefined ? undefined : this.#endings.get(token)
  }

  #ask(lease: TrackedLease): boolean {
    const answer = lease.ask()
    if (answer === 'revived')
      this.#world.fail('G4', `lease ${shortId(lease.id)} on ${lease.name} was over and is back`)
    return answer === 'believes'
  }

  #heldTooLong(lease: TrackedLease): void {
    this.#world.fail(
      'max-hold',
      `lease ${shortId(lease.id)} on ${lease.name} is held ${Math.round(lease.overdueMs)} ms longer than its maxHoldMs`,
    )
  }

  /** A lease ends by its deadline, and not because one renewal got no answer (T12, lost replies to renewals). */
  #mustBeLost(lease: TrackedLease): void {
    if (lease.lossReason !== 'expired' && lease.lossReason !== 'unreachable') return
    const session = this.#leftovers.sessionOf(lease.id)
    const since = session?.confirmedSince(lease.id)
    if (session === undefined || since === undefined || this.#world.isHopeless(session.id)) return
    const elapsed = since.map((each) => elapsedMs(lease.process, each))
    const leftMs = session.ttlMs - defaultDriftMs(session.ttlMs) - Math.max(...elapsed)
    // Safe, but a pity: its session has more time than the lease was told.
    if (leftMs <= 1 && session.leftMs > session.ttlMs / 2) this.#world.lostNeedlessly(lease.id)
    if (leftMs > 1)
      this.#world.fail(
        'T12',
        `lease ${shortId(lease.id)} on ${lease.name} gave up ${Math.round(leftMs)} ms before its time`,
      )
  }

  // --- what the engine does --------------------------------------------------------------------------------

  granted(claim: ClaimState, name: NameState): void {
    const world = this.#world
    const id = publicIdOf(claim.attempt)
    this.grants++
    if (this.#endedAtMs.get(name.name) === world.nowMs) this.handOvers++
    if (claim.token !== null) this.#tokens.set(id, claim.token)
    this.#leftovers.granted(claim)
    this.#closedNames.granted(claim, name)
    world.note('engine', 'grants', `${name.name} ${shortId(claim.attempt)} token ${claim.token}`)
    if (heldWeight(name) > name.capacity)
      world.fail(
        'G1',
        `${name.name} is held ${heldWeight(name)} of ${name.capacity} after ${shortId(claim.attempt)}`,
      )
    if (claim.token === null || claim.token <= this.#lastToken)
      world.fail('G2', `token ${claim.token} of ${name.name} after token ${this.#lastToken}`)
    else this.#lastToken = claim.token
    world.history.granted(claim, name)
    const holding = new Set([...name.holders.values()].map((each) => publicIdOf(each.attempt)))
    const leases = this.#leases.get(name.name)
    for (const lease of leases ?? []) {
      if (!lease.process.isAlive) leases?.delete(lease)
      else if (!holding.has(lease.id)) this.#overtaken(lease, claim)
    }
  }

  queued(claim: ClaimState, name: NameState): void {
    this.#world.history.queued(claim, name)
  }

  ended(claim: ClaimState, name: NameState, ending: Ending, askedBy: string | null): void {
    const world = this.#world
    const { session } = claim
    const ownLeftMs = this.#leftovers.sessionOf(publicIdOf(claim.attempt))?.leftMs ?? 0
    const end = { ending, atMs: world.nowMs, atEngineMs: world.engine.nowMs, session, ownLeftMs }
    world.note(
      'engine',
      claim.token === null ? 'drops' : 'ends',
      `${name.name} ${shortId(claim.attempt)} ${ending}`,
    )
    world.count(`ending ${ending}`)
    world.history.ended(claim, ending)
    this.#closedNames.ended(claim, ending)
    if (claim.token === null) return
    this.#endedAtMs.set(name.name, world.nowMs)
    const { token } = claim
    this.#endings.set(token, end)
    // A crash takes back what was not synced.
    world.engine.journal.note(() => void this.#endings.delete(token))
    const lease = this.trackedLease({ name: name.name, id: publicIdOf(claim.attempt) })
    // A lease that was lost before, as after `maxHoldMs`, is given back although its body runs.
    if (ending === 'released' && lease?.isBodyRunning && lease.abortedAtMs === undefined)
      world.fail('T53', `${name.name} was released while the body of ${shortId(claim.attempt)} still ran`)
    if (askedBy !== null && askedBy !== claim.attempt)
      world.fail('G7', `${shortId(askedBy)} ended ${shortId(claim.attempt)}, who holds ${name.name}`)
    if (ending === 'expired' && end.atEngineMs < session.prolongedAtMs + session.ttlMs - 0.01)
      world.fail('G13', `${shortId(claim.attempt)} on ${name.name} was ended before its time`)
  }

  forcing(name: string): void {
    this.#world.history.forcing(name)
  }

  prolonged(session: SessionState): void {
    this.#world.history.prolonged(session)
  }

  /** Another client has the name now: the holder before must have stopped. */
  #overtaken(lease: TrackedLease, by: ClaimState): void {
    const end = this.#endOf(lease)
    const { machine } = lease.process
    const wasTold = lease.isOver
    const believes = this.#ask(lease)
    if (!unforeseeable.has(end?.ending)) {
      if (believes) this.#believesTooLong(lease, end?.ending ?? 'vanished', by)
      const couldAct = !machine.isStopped && !machine.wasSuspended
      const hadTime = this.#world.nowMs - machine.resumedAtMs > TIMER_GRACE_MS
      if (!wasTold && !believes && couldAct && hadTime)
        this.#world.fail(
          'G3',
          `lease ${shortId(lease.id)} on ${lease.name} is over, and its signal did not say so in time`,
        )
    }
    if (end !== undefined) this.#bodyMustHaveStopped(lease, end)
    if (lease.isOver && !lease.isBodyRunning) this.#leases.get(lease.name)?.delete(lease)
  }

  #believesTooLong(lease: TrackedLease, ending: string, by?: ClaimState): void {
    const given = by === undefined ? '' : `, and given to ${shortId(by.attempt)}`
    const leftMs = lease.lease.remainingMs.toFixed(1)
    this.#world.fail(
      'G3',
      `lease ${shortId(lease.id)} believes in ${lease.name} for ${leftMs} ms more, but at the engine it is ${ending}${given}`,
    )
  }

  /** A closing locker gives nothing away while a body still runs under it (T53, early releases). */
  #bodyMustHaveStopped(lease: TrackedLease, { ending, session, ownLeftMs }: Ended): void {
    if (!lease.isBodyRunning || lease.lossReason !== 'closed' || !ownEndings.has(ending)) return
    if (!this.#world.isHopeless(session.id) && ownLeftMs > session.ttlMs * 0.1)
      this.#world.fail('T53', `${lease.name} was given away while the body of ${shortId(lease.id)} still ran`)
  }

  // --- now and then ----------------------------------------------------------------------------------------

  /** Looks for what the engine has and no client wants, what is free and no waiter gets, and clients that were not told. */
  lookAround(): void {
    this.#leftovers.lookAround()
    for (const leases of this.#leases.values())
      for (const lease of leases) {
        if (!lease.process.isAlive) leases.delete(lease)
        else if (!lease.isOver && !lease.process.machine.isStopped) this.#lookAt(lease)
      }
    for (const client of this.#world.clients) client.lookAtTimers()
  }

  #lookAt(lease: TrackedLease): void {
    this.#mustLearn(lease)
    const hadTime = this.#world.nowMs - lease.process.machine.resumedAtMs > TIMER_GRACE_MS
    if (hadTime && lease.timerOverdueMs > TIMER_GRACE_MS) this.#heldTooLong(lease)
  }

  /** A force release is noticed at the next keep-alive, or at the latest when the time is up (T34, deleted lock keys). */
  #mustLearn(lease: TrackedLease): void {
    const end = this.#endOf(lease)
    const { ttlMs, expirySlackMs } = this.#world.settings
    const allowedMs = ttlMs * 1.3 + expirySlackMs + 1_000
    if (!unforeseeable.has(end?.ending) || this.#world.nowMs - (end?.atMs ?? 0) < allowedMs) return
    if (this.#ask(lease))
      this.#world.fail(
        'T34',
        `lease ${shortId(lease.id)} on ${lease.name} was ${end?.ending} long ago, and has not noticed`,
      )
  }
}
