/** Leftovers: what the engine has and no client wants (G6), what is free and no waiter gets (G10), and renewals that have ended (T30, renewals that stop silently). */
import { publicIdOf } from '../../packages/holdfast/src/base/ids.ts'
import type { AcquireRequest, Call } from '../../packages/holdfast/src/spi.ts'
import type { SimSession } from './backend.ts'
import { shortId } from './engine/messages.ts'
import { type ClaimState, heldWeight, type NameState } from './engine/state.ts'
import type { SimProcess } from './machine.ts'
import type { TrackedLease } from './tracked.ts'
import type { World } from './world.ts'

interface Ask {
  readonly process: SimProcess
  readonly session: SimSession
  readonly signal: AbortSignal
  isOver: boolean
}

export class Leftovers {
  readonly #world: World
  readonly #leases = new Map<string, TrackedLease>()
  /** Leases that are over; their claims may linger for as long as their locker is closing. */
  readonly #ended = new Map<string, TrackedLease>()
  readonly #asks = new Map<string, Ask>()
  readonly #sessions = new Map<string, SimSession>()
  readonly #unwantedSinceMs = new Map<string, number>()
  readonly #grantedAtMs = new Map<string, number>()

  constructor(world: World) {
    this.#world = world
  }

  askedFor(request: AcquireRequest, call: Call, session: SimSession, process: SimProcess): void {
    this.#asks.set(request.attempt, { process, session, signal: call.signal, isOver: false })
    this.#sessions.set(publicIdOf(request.attempt), session)
  }

  answered(attempt: string): void {
    const ask = this.#asks.get(attempt)
    if (ask !== undefined) ask.isOver = true
  }

  handedOut(lease: TrackedLease): void {
    this.#leases.set(lease.id, lease)
  }

  granted(claim: ClaimState): void {
    this.#grantedAtMs.set(claim.attempt, this.#world.nowMs)
  }

  /** The session that this lease was asked for in. */
  sessionOf(leaseId: string): SimSession | undefined {
    return this.#sessions.get(leaseId)
  }

  lookAround(): void {
    for (const lease of this.#leases.values()) {
      if (!lease.isOver && lease.process.isAlive) this.#mustBeRenewed(lease)
      else {
        this.#leases.delete(lease.id)
        this.#ended.set(lease.id, lease)
      }
    }
    const { engine } = this.#world
    if (engine.isDown || engine.isFrozen) return
    for (const session of engine.engine.sessions.values())
      for (const claim of session.claims.values()) this.#mustBeWanted(claim)
    for (const name of engine.engine.names.values()) this.#mustGoOn(name)
  }

  /** Whatever happens to one keep-alive, the next one follows (T30). */
  #mustBeRenewed(lease: TrackedLease): void {
    const session = this.sessionOf(lease.id)
    const { machine } = lease.process
    if (session === undefined || machine.isStopped) return
    // The interval with its jitter, or the longest pause after a failure.
    const allowedMs = Math.max(session.ttlMs * 0.37, 1_000) + 200
    const fromMs = Math.max(session.keptAliveAtMs, machine.lastStopMs)
    if (this.#world.nowMs - fromMs > allowedMs && lease.ask() === 'believes')
      this.#world.fail(
        'T30',
        `the session of ${shortId(lease.id)} on ${lease.name} is not being renewed any more`,
      )
  }

  #mustBeWanted(claim: ClaimState): void {
    const world = this.#world
    if (this.#isWanted(claim)) {
      this.#unwantedSinceMs.delete(claim.attempt)
      this.#mustKnowOfIt(claim)
      return
    }
    const sinceMs = this.#unwantedSinceMs.get(claim.attempt)
    if (sinceMs === undefined) {
      this.#unwantedSinceMs.set(claim.attempt, world.nowMs)
      return
    }
    // Unresolved for at most one TTL, then the session is given up, and ends at the engine one TTL later.
    const { expirySlackMs, callTimeoutMs } = world.settings
    const allowedMs = 2.2 * claim.session.ttlMs + expirySlackMs + callTimeoutMs + 1_000
    const fromMs = Math.max(sinceMs, world.engine.lastTroubleMs, this.#lastCopyMs(claim))
    const forMs = world.nowMs - fromMs
    if (forMs > allowedMs)
      world.fail(
        'G6',
        `${shortId(claim.attempt)} ${claim.token === null ? 'waits for' : 'holds'} ${claim.name}, and no client has wanted it for ${Math.round(forMs)} ms`,
      )
  }

  /** A client that has given its session up cannot take back copies of its keep-alives: they prolong the session. */
  #lastCopyMs(claim: ClaimState): number {
    const { nowMs, engine } = this.#world
    const session = this.#sessions.get(publicIdOf(claim.attempt))
    if (session === undefined || nowMs - session.keptAliveAtMs <= session.ttlMs) return 0
    return nowMs - (engine.nowMs - claim.session.prolongedAtMs)
  }

  #isWanted(claim: ClaimState): boolean {
    const id = publicIdOf(claim.attempt)
    const lease = this.#leases.get(id) ?? this.#ended.get(id)
    if (lease !== undefined) return lease.process.isAlive && (!lease.isOver || lease.lossReason === 'closed')
    const ask = this.#asks.get(claim.attempt)
    if (ask === undefined || !ask.process.isAlive) return false
    return (!ask.isOver && !ask.signal.aborted) || this.#world.isGathering(ask.process, claim.name)
  }

  /** A push that got lost costs one keep-alive, not the lock (G10). */
  #mustKnowOfIt(claim: ClaimState): void {
    const world = this.#world
    const id = publicIdOf(claim.attempt)
    if (claim.token === null || world.nowMs < world.healedAtMs || this.#leases.has(id)) return
    const ask = this.#asks.get(claim.attempt)
    // Of several that are gathered, each is known to core before the set is handed out.
    if (ask !== undefined && world.isGathering(ask.process, claim.name)) return
    const fromMs = Math.max(this.#grantedAtMs.get(claim.attempt) ?? 0, world.healedAtMs)
    if (ask?.isOver === false && !this.#ended.has(id) && world.nowMs - fromMs > claim.session.ttlMs + 2_000)
      world.fail(
        'G10',
        `${shortId(claim.attempt)} has been granted ${claim.name}, and its client never learnt of it`,
      )
  }

  #mustGoOn(name: NameState): void {
    const [first] = name.line
    if (first === undefined) return
    const world = this.#world
    if (!world.engine.engine.sessions.has(first.session.id))
      world.fail('T20', `a dead waiter, ${shortId(first.attempt)}, is first in the queue for ${name.name}`)
    if (name.closedUntilMs <= world.engine.nowMs - 1 && heldWeight(name) + first.weight <= name.capacity)
      world.fail(
        'G10',
        `${name.name} is free, and ${shortId(first.attempt)}, which is first in the queue, does not get it`,
      )
  }
}
