/** A client's part of the history: each event goes to the harness as soon as it has happened. */
import { onEvent } from '../../packages/holdfast/src/base/events.ts'
import type { Lease } from '../../packages/holdfast/src/base/types.ts'
import type { Answer, NewInvocation, Outcome } from '../check/index.ts'
import type { Note } from './messages.ts'
import { nowMs } from './observer.ts'
import type { Prolongation } from './tap.ts'

interface Belief {
  readonly lease: Lease
  readonly driftMs: number
  /** The last moment at which a reading may say "held". */
  deadline: number
}

export class Notes {
  readonly #process: string
  readonly #send: (note: Note) => void
  readonly #granted = new Map<string, Prolongation>()
  #belief: Belief | null = null
  #operations = 0

  constructor(process: string, send: (note: Note) => void) {
    this.#process = process
    this.#send = send
    onEvent('lost', ({ id, reason }) => this.#ended(id, nowMs(), { why: 'lost', reason }))
  }

  /** Call it before the operation begins; the result is for when it has ended. */
  invoke(operation: Omit<NewInvocation, 'process' | 'id'>): {
    readonly id: string
    readonly end: (outcome: Outcome, answer?: Answer) => void
  } {
    const id = `${this.#process}-${++this.#operations}`
    this.#send({ kind: 'invoke', at: nowMs(), id, process: this.#process, ...operation })
    return {
      id,
      end: (outcome, answer = {}) => this.#send({ kind: 'return', at: nowMs(), id, outcome, ...answer }),
    }
  }

  /** A guard event's time is taken inside of the guard's transaction, which gives all of them their true order. */
  add(note: Note): void {
    this.#send(note)
  }

  /** A keep-alive may tell of a grant that a push has told of before: then it prolongs what is held already. */
  granted(prolongation: Prolongation): void {
    if (this.#belief?.lease.id === prolongation.leaseId) this.confirmed(prolongation)
    else this.#prolongGrant(prolongation, -Infinity)
  }

  confirmed(prolongation: Prolongation): void {
    const at = nowMs()
    const { leaseId, sentAt, ttlMs } = prolongation
    const belief = this.#belief
    // A grant on an old heartbeat is confirmed before it is handed out; belief then begins with that.
    this.#prolongGrant(prolongation, Infinity)
    // An answer that comes after the deadline must not revive it; if it is believed in all the same, that is noted.
    if (belief?.lease.id !== leaseId || !isBelievedIn(belief.lease)) return
    this.#send({ kind: 'belief', what: 'confirmed', at, leaseId, sentAt, ttlMs })
    belief.deadline = Math.max(belief.deadline, sentAt + ttlMs - belief.driftMs)
  }

  /** `otherwise`: what a grant that is not known counts from. */
  #prolongGrant(prolongation: Prolongation, otherwise: number): void {
    const { leaseId, sentAt } = prolongation
    if (sentAt > (this.#granted.get(leaseId)?.sentAt ?? otherwise)) this.#granted.set(leaseId, prolongation)
  }

  began(lease: Lease, driftMs: number): void {
    const { id: leaseId, name, fence } = lease
    const grant = this.#granted.get(leaseId)
    this.#granted.clear()
    // The time first: a process may be stopped between any two steps, and what is said now held a moment ago, too.
    const at = nowMs()
    if (grant === undefined || !isBelievedIn(lease)) return
    const { sentAt, ttlMs } = grant
    this.#belief = { lease, driftMs, deadline: sentAt + ttlMs - driftMs }
    const facts = { leaseId, name, ...(fence && { token: fence.token }), sentAt, ttlMs, driftMs }
    this.#send({ kind: 'belief', what: 'began', at, process: this.#process, ...facts })
  }

  look(lease: Lease): void {
    const at = nowMs()
    if (this.#belief?.lease === lease && isBelievedIn(lease))
      this.#send({ kind: 'belief', what: 'seen', at, leaseId: lease.id })
  }

  /** `at`: just before it was released. */
  released({ id }: Lease, at: number): void {
    this.#ended(id, at, { why: 'released' })
  }

  #ended(leaseId: string, at: number, how: { why: 'released' } | { why: 'lost'; reason: string }): void {
    const belief = this.#belief
    if (belief?.lease.id !== leaseId) return
    this.#belief = null
    const believedUntil = how.why === 'lost' ? Math.min(at, belief.deadline) : at
    this.#send({ kind: 'belief', what: 'ended', at, leaseId, ...how, believedUntil })
  }
}

function isBelievedIn({ state }: Lease): boolean {
  return state === 'held' || state === 'jeopardy'
}
