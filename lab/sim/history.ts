/**
 * The run as a history of `lab/check`, so that its checkers judge it too, independently of the checks that run along.
 * Operations are those of the SPI, one for each attempt, and a process of the history is a session. What a crash took
 * back never happened.
 */

import { publicIdOf } from '../../packages/holdfast/src/base/ids.ts'
import type { AcquireRequest, Claim, LostClaim } from '../../packages/holdfast/src/spi.ts'
import { assemble } from '../check/assemble.ts'
import type { History as CheckedHistory, HistoryEvent, OperationKind, Outcome } from '../check/history.ts'
import type { Journal } from './engine/journal.ts'
import type { ClaimState, Ending, NameState, SessionState } from './engine/state.ts'
import type { Visit } from './resource.ts'
import type { World } from './world.ts'

type Unstamped<E> = E extends unknown ? Omit<E, 'seq' | 'at'> : never
type NewEvent = Unstamped<HistoryEvent>

interface Answered {
  readonly token?: bigint
  readonly sentAt?: number
  readonly ttlMs?: number
}

interface Entry {
  readonly at: number
  readonly event: NewEvent
  isTakenBack: boolean
}

const endings = {
  released: 'released',
  abandoned: 'released',
  closed: 'released',
  expired: 'expired',
  forced: 'forced',
  deleted: 'deleted',
} as const

export class History {
  readonly #world: World
  readonly #isKept: boolean
  readonly #entries: Entry[] = []
  readonly #open = new Map<string, string>()
  #operations = 0

  constructor(world: World, options: { readonly isKept: boolean }) {
    this.#world = world
    this.#isKept = options.isKept
  }

  toChecked(): CheckedHistory {
    const { waiting, expirySlackMs, latencyMs, syncMs } = this.#world.settings
    const events = this.#entries
      .filter(({ isTakenBack }) => !isTakenBack)
      .map(({ at, event }, index) => ({ ...event, seq: index + 1, at }) as HistoryEvent)
    const about = {
      kind: 'about' as const,
      version: 1 as const,
      backend: 'sim',
      issuer: 'sim',
      fencing: 'fenced' as const,
      waiting,
      expirySlackMs: expirySlackMs + 5,
      roundTripMs: 3 * latencyMs + syncMs + 5,
      engineTimes: 'exact' as const,
    }
    return assemble(about, events)
  }

  // --- what clients do -------------------------------------------------------------------------------------

  asked(
    process: string,
    { name, attempt, mode, weight, capacity, lockDelayMs }: AcquireRequest,
    waits: boolean,
  ): void {
    const leaseId = publicIdOf(attempt)
    this.#invoke(`acquire ${leaseId}`, process, {
      op: 'acquire',
      name,
      leaseId,
      mode,
      weight,
      capacity,
      lockDelayMs,
      waits,
    })
  }

  /** The first answer counts; a grant may come by several ways. */
  refused(attempt: string): void {
    this.#return(`acquire ${publicIdOf(attempt)}`, 'fail')
  }

  /** `sentAt`: when the heartbeat was sent that the grant counts from. */
  obtained(attempt: string, token: bigint, sentAt: number, ttlMs: number): void {
    const facts = { token, sentAt, ttlMs: this.#observed(ttlMs) }
    this.#return(`acquire ${publicIdOf(attempt)}`, 'ok', facts)
  }

  /** A keep-alive leaves; call the result when it has been confirmed, with what it said was lost. */
  renewing(session: string, held: readonly Claim[], ttlMs: number): (lost: readonly LostClaim[]) => void {
    if (!this.#isKept) return () => {}
    const keys = held.map(({ name, attempt }) => {
      const leaseId = publicIdOf(attempt)
      const key = `renew ${leaseId} ${++this.#operations}`
      this.#invoke(key, session, { op: 'renew', name, leaseId, ttlMs: this.#observed(ttlMs) })
      return { key, attempt }
    })
    return (lost) => {
      const isLost = new Set(lost.map(({ attempt }) => attempt))
      for (const { key, attempt } of keys) this.#return(key, isLost.has(attempt) ? 'fail' : 'ok')
    }
  }

  forcing(name: string): void {
    this.#invoke(`force ${++this.#operations}`, 'operator', { op: 'force-release', name })
  }

  queuedFor(attempt: string): void {
    const id = this.#open.get(`acquire ${publicIdOf(attempt)}`)
    if (id !== undefined) this.#add({ kind: 'queued', id })
  }

  /** Runs a call that ends a claim, and notes how it ended. */
  async ending<T>(
    op: 'release' | 'abandon',
    process: string,
    claim: Claim,
    call: Promise<T>,
    outcomeOf: (answer: T) => Outcome,
  ): Promise<T> {
    const leaseId = publicIdOf(claim.attempt)
    const key = `${op} ${leaseId} ${++this.#operations}`
    this.#invoke(key, process, { op, name: claim.name, leaseId })
    try {
      const answer = await call
      this.#return(key, outcomeOf(answer))
      return answer
    } catch (error) {
      this.#return(key, 'unknown')
      throw error
    }
  }

  async closing(session: string, call: Promise<unknown>): Promise<void> {
    const key = `close ${session}`
    this.#invoke(key, session, { op: 'close' })
    await call.then(
      () => this.#return(key, 'ok'),
      (error) => {
        this.#return(key, 'unknown')
        throw error
      },
    )
  }

  // --- what the engine and the guard do ----------------------------------------------------------------------

  granted(claim: ClaimState, name: NameState): void {
    this.#engineEvent('granted', claim, {
      token: claim.token ?? 0n,
      capacity: name.capacity,
    })
  }

  queued(claim: ClaimState, name: NameState): void {
    this.#engineEvent('enqueued', claim, { capacity: name.capacity })
  }

  ended(claim: ClaimState, ending: Ending): void {
    if (ending === 'forced' || ending === 'deleted') this.#add({ kind: 'meddled', name: claim.name })
    this.#engineEvent(claim.token === null ? 'left' : endings[ending], claim, {})
  }

  prolonged(session: SessionState): void {
    if (!this.#isKept) return
    for (const claim of session.claims.values())
      if (claim.token !== null) this.#engineEvent('renewed', claim, {})
  }

  visited({ kind, fence }: Visit, accepted: boolean, journal: Journal): void {
    const { name, token, grant: leaseId, mode } = fence
    const verdict = accepted ? ('accepted' as const) : ('refused' as const)
    this.#add({ kind: 'guard', guard: 'sim', name, verdict, token, leaseId, mode, access: kind }, journal)
  }

  /** A TTL by the engine's clock, converted to the observer's. */
  #observed(ttlMs: number): number {
    return ttlMs / this.#world.settings.engineRate - 0.01
  }

  #engineEvent(
    what: 'granted' | 'renewed' | 'released' | 'expired' | 'forced' | 'deleted' | 'enqueued' | 'left',
    { name, attempt, mode, weight, session }: ClaimState,
    facts: { readonly token?: bigint; readonly capacity?: number },
  ): void {
    const leaseId = publicIdOf(attempt)
    this.#add(
      { kind: 'engine', what, name, leaseId, process: session.id, mode, weight, ...facts },
      this.#world.engine.journal,
    )
  }

  #invoke(
    key: string,
    process: string,
    facts: { readonly op: OperationKind } & Partial<Extract<NewEvent, { kind: 'invoke' }>>,
  ): void {
    if (!this.#isKept) return
    const id = `${++this.#operations}`
    this.#open.set(key, id)
    this.#add({ kind: 'invoke', id, process, ...facts })
  }

  #return(key: string, outcome: Outcome, facts: Answered = {}): void {
    const id = this.#open.get(key)
    if (id === undefined) return
    this.#open.delete(key)
    this.#add({ kind: 'return', id, outcome, ...facts })
  }

  #add(event: NewEvent, journal?: Journal): void {
    if (!this.#isKept) return
    const entry: Entry = { at: this.#world.nowMs, event, isTakenBack: false }
    this.#entries.push(entry)
    journal?.note(() => {
      entry.isTakenBack = true
    })
  }
}
