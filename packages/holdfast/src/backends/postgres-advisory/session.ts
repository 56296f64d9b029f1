/**
 * A session is a connection, and the lock of a name is in it, or in a connection that waited for its turn: see `claims.ts`.
 *
 *   open ──its connection ends | close──▶ ended        [#finish, close]
 */
import { type Instant, instantOf, laterOf } from '../../base/clock.ts'
import type { LossReason } from '../../base/errors.ts'
import type {
  AcquireRequest,
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  EnqueueResult,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
  SessionHandle,
} from '../../spi.ts'
import { Claims, type Life } from './claims.ts'
import { unlessCallIsCancelled } from './lane.ts'
import type { Links } from './links.ts'
import type { Forced, LockConnection } from './lock-connection.ts'
import { statesOf } from './looking.ts'

export interface SessionFacts {
  readonly id: string
  readonly ttlMs: number
  readonly holder: string
  readonly since: Instant
  readonly onEnd: () => void
}

const ignore = () => {}
const DELETED = { reason: 'deleted' } as const

export class AdvisorySession implements BackendSession<'fenced'> {
  readonly id: string
  readonly ttlMs: number
  readonly since: Instant
  readonly handle: SessionHandle
  readonly #links: Links
  readonly #main: LockConnection
  readonly #claims: Claims
  readonly #onEnd: () => void
  #prolongedAt: Instant
  #ended = false

  constructor(links: Links, main: LockConnection, { id, ttlMs, holder, since, onEnd }: SessionFacts) {
    this.id = id
    this.ttlMs = ttlMs
    this.since = since
    this.handle = { id, ttlMs, holder }
    this.#links = links
    this.#main = main
    this.#prolongedAt = since
    this.#onEnd = onEnd
    this.#claims = new Claims(links, main, this.#life())
    main.onEnd(() => this.#finish())
    links.ears.add(main.key, {
      forced: (forced) => void this.#giveBack(forced).catch(ignore),
      missed: () => void this.#lookForForced().catch(ignore),
    })
    if (main.ended) this.#finish()
  }

  get ended(): boolean {
    return this.#ended
  }

  #life(): Life {
    const [isEnded, prolongedAt] = [() => this.#ended, () => this.#prolongedAt]
    return {
      ttlMs: this.ttlMs,
      get ended() {
        return isEnded()
      },
      get prolongedAt() {
        return prolongedAt()
      },
      finish: () => this.#finish(),
    }
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    this.#links.check(call)
    if (this.#ended) return { kind: 'gone' }
    const since = instantOf(this.#links.clock)
    const waitedFor = listed.waiting.flatMap(({ attempt }) => this.#claims.get(attempt)?.key ?? [])
    try {
      await unlessCallIsCancelled(this.#keep(waitedFor), call.signal)
    } catch (error) {
      if (this.#ended) return { kind: 'gone' }
      throw error
    }
    if (this.#ended) return { kind: 'gone' }
    void this.#links.ears.ready()
    this.#prolongedAt = laterOf(this.#prolongedAt, since)
    const gone = [
      ...listed.held.filter((claim) => !this.#claims.hasGrant(claim)),
      ...listed.waiting.filter(({ attempt }) => !this.#claims.isKnown(attempt)),
    ]
    const lost = await this.#lostOf(gone, call)
    const granted = listed.waiting.flatMap(({ attempt }) => {
      const holding = this.#claims.get(attempt)
      return holding?.state === 'held' ? [this.#claims.grantOf(holding)] : []
    })
    const listedAttempts = [...listed.held, ...listed.waiting].map(({ attempt }) => attempt)
    const isListed = new Set(listedAttempts)
    for (const { attempt } of gone) isListed.delete(attempt)
    const unlisted = [...this.#claims.all()]
      .filter(({ attempt, state }) => (state === 'held' || state === 'waiting') && !isListed.has(attempt))
      .map(({ name, attempt }) => ({ name, attempt }))
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted, unlisted }
  }

  tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    return this.#claims.tryAcquire(request, call)
  }

  enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    return this.#claims.enqueue(request, call)
  }

  abandon(claim: Claim, call: Call): Promise<void> {
    return this.#claims.abandon(claim, call)
  }

  release(
    claim: GrantedClaim,
    _options: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    return this.#claims.release(claim, call)
  }

  async close(call: Call): Promise<void> {
    this.#links.check(call)
    await this.end(call.signal)
  }

  /** Gives up everything, and the connections. */
  async end(signal: AbortSignal): Promise<void> {
    if (this.#ended) return
    this.#markEnded()
    const closing = this.#claims.closeConnections().finally(() => this.#main.close())
    try {
      await unlessCallIsCancelled(closing, signal)
    } catch (error) {
      this.#main.drop()
      throw error
    }
  }

  async #keep(waitedFor: readonly string[]): Promise<void> {
    const held = [...this.#claims.all()].filter(({ state }) => state === 'held')
    const [answer] = await Promise.all([
      this.#main.keep(this.ttlMs, waitedFor),
      // One that has ended has told so; whatever else is wrong with it ends it.
      ...held.map(({ connection }) => connection?.keep(this.ttlMs).catch(ignore)),
    ])
    for (const forced of answer.forced) await this.#giveBack(forced)
    // The server says that it is their turn; their own connections are about to say so as well.
    for (const id of answer.turns) await this.#claims.byId(id)?.settled.catch(ignore)
  }

  async #lookForForced(): Promise<void> {
    const { forced } = await this.#main.keep(this.ttlMs)
    for (const each of forced) await this.#giveBack(each)
  }

  /** An operator wants it back. */
  async #giveBack({ id, reason }: Forced): Promise<void> {
    const holding = this.#claims.byId(id)
    if (holding?.state === 'held') await this.#claims.force(holding, reason)
    await this.#main.unforce(this.#main.key, id)
  }

  async #lostOf(gone: readonly Claim[], call: Call): Promise<readonly LostClaim[]> {
    const lost: LostClaim[] = []
    for (const { attempt, name } of gone) {
      // The attempt was granted once more, under another token: the listed grant was deleted before (T84).
      const known = this.#claims.isKnown(attempt) ? DELETED : this.#claims.whyLost(attempt)
      lost.push({ attempt, ...(known ?? { reason: await this.#whatBecameOf(name, call) }) })
    }
    return lost
  }

  async #whatBecameOf(name: string, { signal }: Call): Promise<LossReason> {
    const { sql, namespace } = this.#links
    const [state] = statesOf(await this.#links.query(sql.show, [namespace, name], signal))
    return (state?.holders.length ?? 0) > 0 ? 'taken-over' : 'deleted'
  }

  /** The connection is gone, and so is everything that stood on it. */
  #finish(): void {
    if (this.#ended) return
    this.#markEnded()
    this.#main.drop()
    this.#claims.closeConnections().catch(ignore)
  }

  #markEnded(): void {
    this.#ended = true
    this.#links.ears.remove(this.#main.key)
    this.#claims.clear()
    this.#onEnd()
  }
}
