/**
 * The claims of a session: asked for over its own connection, waited for over others, given up where they are. See
 * `holdings.ts` for what becomes of a claim.
 *
 * What may go wrong between asking and believing: the connection ends (the server gives everything up, and the session is
 * gone); an answer comes late (the claim is known all the same, and whoever does not want it any more abandons it); a
 * wait is cancelled in the moment of its turn (T11: its connection is ended, whatever it has got by then).
 */

import type { Instant } from '../../base/clock.ts'
import { ClosedError } from '../../base/errors.ts'
import { tokenGrant } from '../../kit/backend-kit.ts'
import type {
  AcquireRequest,
  AcquireResult,
  Call,
  Claim,
  EnqueueResult,
  Grant,
  GrantedClaim,
  LostClaim,
} from '../../spi.ts'
import { type Holding, Holdings, type LockMode } from './holdings.ts'
import { Lane, unlessCallIsCancelled } from './lane.ts'
import { type Links, NAME } from './links.ts'
import type { LockConnection } from './lock-connection.ts'
import { type Answer, type Item, operations } from './operations.ts'
import { abandoned, collision, failed } from './refusals.ts'
import { Waits } from './waits.ts'

/** What claims have to know of their session. */
export interface Life {
  readonly ttlMs: number
  readonly ended: boolean
  /** When the request was sent that last prolonged the session; grants count from here (T64, T65). */
  readonly prolongedAt: Instant
  /** The server says that the session is over. */
  finish(): void
}

/** Why a claim was lost. */
export type Loss = Omit<LostClaim, 'attempt'>

const GONE = { kind: 'session-gone' } as const
const BUSY = { kind: 'busy' } as const
const ignore = () => {}

export class Claims {
  readonly #links: Links
  readonly #life: Life
  readonly #lane: Lane
  readonly #waits: Waits
  readonly #holdings = new Holdings()
  readonly #abandoned = new Set<string>()
  /** Why claims were lost that the session does not have any more. */
  readonly #lost = new Map<string, Loss>()
  /** Attempts whose request is in flight: a keep-alive that overtakes them must not take them for lost. */
  readonly #onTheWay = new Set<string>()

  constructor(links: Links, main: LockConnection, life: Life) {
    this.#links = links
    this.#life = life
    this.#lane = new Lane(main)
    this.#waits = new Waits(links, main, life.ttlMs)
  }

  get(attempt: string): Holding | undefined {
    return this.#holdings.get(attempt)
  }

  byId(id: string): Holding | undefined {
    return this.#holdings.byId(id)
  }

  all(): IterableIterator<Holding> {
    return this.#holdings.all()
  }

  /** The session has it, or is about to. */
  isKnown(attempt: string): boolean {
    return this.#holdings.get(attempt) !== undefined || this.#onTheWay.has(attempt)
  }

  /** The session has this very grant, though it may be giving it up. */
  hasGrant({ attempt, grantId }: GrantedClaim): boolean {
    const holding = this.#holdings.get(attempt)
    return holding !== undefined && String(holding.token) === grantId
  }

  whyLost(attempt: string): Loss | undefined {
    return this.#lost.get(attempt)
  }

  grantOf(holding: Holding): Grant<'fenced'> {
    const { prolongedAt: since, ttlMs } = this.#life
    return tokenGrant(holding, holding.token, { since, ttlMs }, null)
  }

  /** An operator wants it back. */
  async force(holding: Holding, detail: string | undefined): Promise<void> {
    const reason = 'force-released'
    this.#lost.set(holding.attempt, detail === undefined ? { reason } : { reason, detail })
    await this.#leave(holding, new AbortController().signal)
  }

  /** The session is over, and nothing is known any more. */
  clear(): void {
    this.#holdings.clear()
  }

  /** Ends the connections that wait, or have waited. */
  closeConnections(): Promise<void> {
    return this.#waits.close()
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    this.#links.check(call)
    return this.#ask(request, call)
  }

  async enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    this.#links.check(call)
    const { attempt, name } = request
    this.#onTheWay.add(attempt)
    try {
      for (;;) {
        const tried = await this.#ask(request, call)
        if (tried.kind !== 'busy') return tried
        const made = this.#links.keys.of(name)
        const key = typeof made === 'string' ? made : await made
        const known = this.#holdings.get(attempt)
        if (known !== undefined && known.state !== 'waiting') continue
        if (known !== undefined) call.onQueued?.()
        const waiting = known ?? this.#stepInLine(request, key, call)
        return await unlessCallIsCancelled(waiting.settled as Promise<EnqueueResult<'fenced'>>, call.signal)
      }
    } finally {
      this.#onTheWay.delete(attempt)
    }
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    this.#links.check(call)
    const { attempt } = claim
    this.#abandoned.add(attempt)
    for (;;) {
      const holding = this.#holdings.get(attempt)
      if (this.#life.ended || holding === undefined) return
      if (holding.state === 'held')
        await this.#leave(holding, call.signal).catch((error: unknown) => {
          if (!this.#life.ended) throw error
        })
      else if (holding.state === 'waiting' && holding.connection !== undefined)
        await this.#waits.callOff(holding.connection, call.signal)
      // Without a connection of its own it finds the mark as soon as it has one.
      await unlessCallIsCancelled(holding.settled.catch(ignore), call.signal)
    }
  }

  async release(claim: GrantedClaim, call: Call): Promise<'released' | 'not-held'> {
    this.#links.check(call)
    for (;;) {
      const holding = this.#holdings.get(claim.attempt)
      if (this.#life.ended || holding === undefined || holding.name !== claim.name) return 'not-held'
      if (holding.state === 'held')
        return this.hasGrant(claim) ? this.#leave(holding, call.signal) : 'not-held'
      if (holding.state !== 'asking') return 'not-held'
      await unlessCallIsCancelled(holding.settled.catch(ignore), call.signal)
    }
  }

  async #ask(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const { name, attempt, note, owner } = request
    const mode = modeOf(request)
    const made = this.#links.keys.of(name)
    const key = typeof made === 'string' ? made : await unlessCallIsCancelled(made, call.signal)
    for (;;) {
      if (this.#links.closed) throw new ClosedError(`The ${NAME} backend`)
      if (this.#life.ended) return GONE
      if (this.#abandoned.has(attempt)) throw abandoned()
      const known = this.#holdings.get(attempt)
      if (known?.state === 'held') return { kind: 'granted', grant: this.grantOf(known) }
      if (known?.state === 'waiting') return BUSY
      const use = this.#holdings.useOf(key)
      if (use !== undefined && use.name !== name) throw collision(name, use.name, key)
      if (known === undefined && use !== undefined) {
        if (mode === 'exclusive' || use.mode === 'exclusive') return BUSY
      }
      const pending = known ?? firstPending(use?.holdings)
      if (pending !== undefined) {
        await unlessCallIsCancelled(pending.settled.catch(ignore), call.signal)
        continue
      }
      const tried = mode === 'exclusive' ? operations.tryExclusive : operations.tryShared
      const op = use === undefined ? tried : operations.join
      const holding = this.#holdings.add(request, key, mode, 'asking')
      this.#holdings.use(holding)
      const item: Item = { op, key, slot: holding.slot, id: holding.id, name, note, owner }
      const asked = this.#lane.add(item).then(
        (answer) => this.#answered(holding, item, answer),
        (error: unknown) => {
          this.#forget(holding)
          if (this.#life.ended && !this.#links.closed) return GONE
          throw error
        },
      )
      holding.settled = asked
      asked.catch(ignore)
      return this.#lane.unlessCallIsCancelled(asked, item, call.signal)
    }
  }

  #answered(holding: Holding, item: Item, { kind, detail }: Answer): AcquireResult<'fenced'> {
    if (this.#life.ended) return GONE
    if (kind === 'granted') {
      this.#holdings.granted(holding, BigInt(detail))
      return { kind: 'granted', grant: this.grantOf(holding) }
    }
    const isShared = this.#forget(holding)
    // The others who shared it have left meanwhile, and counted on this one.
    if (item.op === operations.join && !isShared)
      this.#lane.add({ ...item, op: operations.giveUpShared }).catch(ignore)
    if (kind === 'busy') return BUSY
    if (kind === 'collision') throw collision(holding.name, detail, holding.key)
    throw failed(holding.name, detail)
  }

  /** Whether others of this session share its key still. */
  #forget(holding: Holding): boolean {
    this.#holdings.remove(holding)
    return this.#holdings.unuse(holding)
  }

  /** Once begun it goes on, also without the caller: others may count on the order. */
  #leave(holding: Holding, signal: AbortSignal): Promise<'released'> {
    holding.state = 'leaving'
    const own = holding.connection
    const isShared = own === undefined && this.#holdings.unuse(holding)
    const { giveUpExclusive, giveUpShared } = operations
    const givenUp = holding.mode === 'exclusive' ? giveUpExclusive : giveUpShared
    const op = isShared ? operations.leave : givenUp
    const { key, slot, id, name } = holding
    const item: Item = { op, key, slot, id, name }
    const leaving = own === undefined ? this.#lane.add(item) : this.#waits.giveUp(own, item)
    const left = leaving.then(() => 'released' as const).finally(() => this.#holdings.remove(holding))
    holding.settled = left
    left.catch(ignore)
    return unlessCallIsCancelled(left, signal)
  }

  #stepInLine(request: AcquireRequest, key: string, call: Call): Holding {
    const holding = this.#holdings.add(request, key, modeOf(request), 'waiting')
    holding.settled = this.#waitInLine(holding, request, () => call.onQueued?.())
    holding.settled.catch(ignore)
    return holding
  }

  async #waitInLine(
    holding: Holding,
    { note, owner, maxWaiters }: AcquireRequest,
    onQueued: () => void,
  ): Promise<EnqueueResult<'fenced'>> {
    const isWanted = () => !this.#life.ended && !this.#abandoned.has(holding.attempt)
    try {
      const { key, id, name, mode } = holding
      const turn = await this.#waits.wait(
        { op: operations.tryExclusive, key, slot: 0, id, name, note, owner },
        mode,
        {
          maxWaiters,
          isWanted,
          onConnection: (connection) => {
            holding.connection = connection
          },
          onQueued,
          onEnd: () => this.#connectionEnded(holding),
        },
      )
      if (turn.kind === 'session-gone') this.#life.finish()
      if (turn.kind === 'session-gone' || this.#life.ended) return this.#endOfWait(holding)
      if (this.#abandoned.has(holding.attempt)) throw abandoned()
      if (turn.kind === 'queue-full') {
        this.#holdings.remove(holding)
        return turn
      }
      holding.state = 'held'
      holding.token = BigInt(turn.token)
      return { kind: 'granted', grant: this.grantOf(holding) }
    } catch (error) {
      this.#holdings.remove(holding)
      if (this.#life.ended) return this.#endOfWait(holding)
      if (this.#abandoned.has(holding.attempt)) throw abandoned({ cause: error })
      throw error
    }
  }

  #endOfWait(holding: Holding): { readonly kind: 'session-gone' } {
    this.#holdings.remove(holding)
    if (this.#links.closed) throw new ClosedError(`The ${NAME} backend`)
    return GONE
  }

  #connectionEnded(holding: Holding): void {
    if (holding.state !== 'held' || this.#life.ended) return
    this.#lost.set(holding.attempt, { reason: 'session-gone' })
    this.#holdings.remove(holding)
  }
}

function modeOf({ mode }: AcquireRequest): LockMode {
  return mode === 'shared' ? 'shared' : 'exclusive'
}

/** While somebody of this session asks for it as the first, it is open whether it can be shared. */
function firstPending(holdings: ReadonlySet<Holding> | undefined): Holding | undefined {
  if (holdings === undefined) return undefined
  const all = [...holdings]
  return all.some(({ state }) => state === 'held') ? undefined : all[0]
}
