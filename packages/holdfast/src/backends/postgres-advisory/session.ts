/**
 * A session is a connection, and the lock of a name is in it, or in a connection that waited for its turn. See
 * `holdings.ts` for what becomes of a claim.
 *
 *   open ──its connection ends | close──▶ ended        [#finish, close]
 *
 * What may go wrong between asking and believing: the connection ends (the server gives everything up, and the session is
 * gone); an answer comes late (the claim is known all the same, and whoever does not want it any more abandons it); a
 * wait is called off in the moment of its turn (T11: its connection is ended, whatever it has got by then).
 */
import { remedyOf } from '../../clients/postgres/index.ts'
import { type Instant, instantOf, laterOf } from '../../core/clock.ts'
import {
  BackendUnavailableError,
  ClosedError,
  type HoldfastError,
  InvalidArgumentError,
  type LossReason,
  quote,
  UnsupportedError,
} from '../../core/errors.ts'
import type {
  AcquireRequest,
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  EnqueueResult,
  Grant,
  KeepAliveResult,
  LostClaim,
  SessionHandle,
} from '../../spi.ts'
import { type Holding, Holdings, type LockMode } from './holdings.ts'
import { Lane, unlessCalledOff } from './lane.ts'
import { type Links, NAME } from './links.ts'
import type { Answer, Item, LockConnection } from './lock-connection.ts'
import { statesOf } from './looking.ts'
import { Waits } from './waits.ts'

export interface SessionFacts {
  readonly id: string
  readonly ttlMs: number
  readonly holder: string
  readonly since: Instant
  readonly onEnd: () => void
}

const GONE = { kind: 'session-gone' } as const
const BUSY = { kind: 'busy' } as const
const ignore = () => {}

export class AdvisorySession implements BackendSession<'fenced'> {
  readonly id: string
  readonly ttlMs: number
  readonly since: Instant
  readonly handle: SessionHandle
  readonly #links: Links
  readonly #main: LockConnection
  readonly #lane: Lane
  readonly #waits: Waits
  readonly #holdings = new Holdings()
  readonly #abandoned = new Set<string>()
  /** Why claims were lost that the session does not have any more. */
  readonly #lost = new Map<string, LossReason>()
  /** Attempts whose request is under way: a keep-alive that overtakes them must not take them for lost. */
  readonly #onTheWay = new Set<string>()
  readonly #onEnd: () => void
  /** When the request was sent that last prolonged the session; grants count from here (T64, T65). */
  #prolongedAt: Instant
  #ended = false

  constructor(links: Links, main: LockConnection, { id, ttlMs, holder, since, onEnd }: SessionFacts) {
    this.id = id
    this.ttlMs = ttlMs
    this.since = since
    this.handle = { id, ttlMs, holder }
    this.#links = links
    this.#main = main
    this.#lane = new Lane(main)
    this.#waits = new Waits(links, main, ttlMs)
    this.#prolongedAt = since
    this.#onEnd = onEnd
    main.onEnd(() => this.#finish())
    links.ears.add(main.key, {
      forced: (id) => void this.#giveBack(id).catch(ignore),
      missed: () => void this.#lookForForced().catch(ignore),
    })
    if (main.ended) this.#finish()
  }

  get ended(): boolean {
    return this.#ended
  }

  async keepAlive(
    listed: { readonly held: readonly Claim[]; readonly waiting: readonly Claim[] },
    call: Call,
  ): Promise<KeepAliveResult<'fenced'>> {
    this.#links.check(call)
    if (this.#ended) return { kind: 'gone' }
    const since = instantOf(this.#links.clock)
    const waitedFor = listed.waiting.flatMap(({ attempt }) => this.#holdings.get(attempt)?.key ?? [])
    try {
      await unlessCalledOff(this.#keep(waitedFor), call.signal)
    } catch (error) {
      if (this.#ended) return { kind: 'gone' }
      throw error
    }
    if (this.#ended) return { kind: 'gone' }
    void this.#links.ears.ready()
    this.#prolongedAt = laterOf(this.#prolongedAt, since)
    const claims = [...listed.held, ...listed.waiting]
    const lost = await this.#lostOf(claims, call)
    const granted = listed.waiting.flatMap(({ attempt }) => {
      const holding = this.#holdings.get(attempt)
      return holding?.state === 'held' ? [this.#grantOf(holding)] : []
    })
    const isListed = new Set(claims.map(({ attempt }) => attempt))
    const unlisted = [...this.#holdings.all()]
      .filter(({ attempt, state }) => (state === 'held' || state === 'waiting') && !isListed.has(attempt))
      .map(({ name, attempt }) => ({ name, attempt }))
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted, unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    this.#links.check(call)
    return this.#ask(request, call)
  }

  async enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    this.#links.check(call)
    const { attempt, name, note } = request
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
        const waiting = known ?? this.#stepInLine(request, key, note, call)
        return await unlessCalledOff(waiting.settled as Promise<EnqueueResult<'fenced'>>, call.signal)
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
      if (this.#ended || holding === undefined) return
      if (holding.state === 'held')
        await this.#leave(holding, call.signal).catch((error) => this.#unlessEnded(error))
      else if (holding.state === 'waiting' && holding.connection !== undefined)
        await this.#waits.callOff(holding.connection, call.signal)
      // Without a connection of its own it finds the mark as soon as it has one.
      await unlessCalledOff(holding.settled.catch(ignore), call.signal)
    }
  }

  async release(
    claim: Claim,
    _options: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    this.#links.check(call)
    for (;;) {
      const holding = this.#holdings.get(claim.attempt)
      if (this.#ended || holding === undefined || holding.name !== claim.name) return 'not-held'
      if (holding.state === 'held') return this.#leave(holding, call.signal)
      if (holding.state !== 'asking') return 'not-held'
      await unlessCalledOff(holding.settled.catch(ignore), call.signal)
    }
  }

  async close(call: Call): Promise<void> {
    this.#links.check(call)
    await this.end(call.signal)
  }

  /** Gives up everything, and the connections. */
  async end(signal: AbortSignal): Promise<void> {
    if (this.#ended) return
    this.#markEnded()
    const closing = this.#waits.close().finally(() => this.#main.close())
    try {
      await unlessCalledOff(closing, signal)
    } catch (error) {
      this.#main.drop()
      throw error
    }
  }

  async #ask(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const { name, attempt, note } = request
    const mode = modeOf(request)
    const made = this.#links.keys.of(name)
    const key = typeof made === 'string' ? made : await unlessCalledOff(made, call.signal)
    for (;;) {
      if (this.#links.closed) throw new ClosedError(`The ${NAME} backend`)
      if (this.#ended) return GONE
      if (this.#abandoned.has(attempt))
        throw new BackendUnavailableError(NAME, 'the attempt was abandoned', 'not-applied')
      const known = this.#holdings.get(attempt)
      if (known?.state === 'held') return { kind: 'granted', grant: this.#grantOf(known) }
      if (known?.state === 'waiting') return BUSY
      const use = this.#holdings.useOf(key)
      if (use !== undefined && use.name !== name) throw collision(name, use.name, key)
      if (known === undefined && use !== undefined) {
        if (mode === 'exclusive' || use.mode === 'exclusive') return BUSY
      }
      const pending = known ?? firstPending(use?.holdings)
      if (pending !== undefined) {
        await unlessCalledOff(pending.settled.catch(ignore), call.signal)
        continue
      }
      const op = use !== undefined ? 'j' : mode === 'exclusive' ? 'x' : 's'
      const holding = this.#holdings.add(request, key, mode, 'asking')
      this.#holdings.use(holding)
      const item: Item = { op, key, slot: holding.slot, id: holding.id, name, note }
      const asked = this.#lane.add(item).then(
        (answer) => this.#answered(holding, item, answer),
        (error: unknown) => {
          this.#forget(holding)
          if (this.#ended && !this.#links.closed) return GONE
          throw error
        },
      )
      holding.settled = asked
      asked.catch(ignore)
      return this.#lane.unlessCalledOff(asked, item, call.signal)
    }
  }

  #answered(holding: Holding, item: Item, { kind, detail }: Answer): AcquireResult<'fenced'> {
    if (this.#ended) return GONE
    if (kind === 'granted') {
      this.#holdings.granted(holding, BigInt(detail))
      return { kind: 'granted', grant: this.#grantOf(holding) }
    }
    const isShared = this.#forget(holding)
    // The others who shared it have left meanwhile, and counted on this one.
    if (item.op === 'j' && !isShared) this.#lane.add({ ...item, op: 'u' }).catch(ignore)
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
    const op = isShared ? 'l' : holding.mode === 'exclusive' ? 'r' : 'u'
    const { key, slot, id, name } = holding
    const item: Item = { op, key, slot, id, name }
    const leaving = own === undefined ? this.#lane.add(item) : this.#waits.giveUp(own, item)
    const left = leaving.then(() => 'released' as const).finally(() => this.#holdings.remove(holding))
    holding.settled = left
    left.catch(ignore)
    return unlessCalledOff(left, signal)
  }

  #stepInLine(request: AcquireRequest, key: string, note: string | undefined, call: Call): Holding {
    const holding = this.#holdings.add(request, key, modeOf(request), 'waiting')
    holding.settled = this.#waitInLine(holding, note, () => call.onQueued?.())
    holding.settled.catch(ignore)
    return holding
  }

  async #waitInLine(
    holding: Holding,
    note: string | undefined,
    onQueued: () => void,
  ): Promise<EnqueueResult<'fenced'>> {
    const isWanted = () => !this.#ended && !this.#abandoned.has(holding.attempt)
    try {
      const { key, id, name, mode } = holding
      const token = await this.#waits.wait({ op: 'x', key, slot: 0, id, name, note }, mode, {
        isWanted,
        onConnection: (connection) => {
          holding.connection = connection
        },
        onQueued,
        onEnd: () => this.#connectionEnded(holding),
      })
      if (token === null) this.#finish()
      if (token === null || this.#ended) return this.#endOfWait(holding)
      if (this.#abandoned.has(holding.attempt))
        throw new BackendUnavailableError(NAME, 'the attempt was abandoned', 'not-applied')
      holding.state = 'held'
      holding.token = BigInt(token)
      return { kind: 'granted', grant: this.#grantOf(holding) }
    } catch (error) {
      this.#holdings.remove(holding)
      if (this.#ended) return this.#endOfWait(holding)
      if (this.#abandoned.has(holding.attempt))
        throw new BackendUnavailableError(NAME, 'the attempt was abandoned', 'not-applied', { cause: error })
      throw error
    }
  }

  #endOfWait(holding: Holding): { readonly kind: 'session-gone' } {
    this.#holdings.remove(holding)
    if (this.#links.closed) throw new ClosedError(`The ${NAME} backend`)
    return GONE
  }

  #connectionEnded(holding: Holding): void {
    if (holding.state !== 'held' || this.#ended) return
    this.#lost.set(holding.attempt, 'session-gone')
    this.#holdings.remove(holding)
  }

  async #keep(waitedFor: readonly string[]): Promise<void> {
    const held = [...this.#holdings.all()].filter(({ state }) => state === 'held')
    const [answer] = await Promise.all([
      this.#main.keep(this.ttlMs, waitedFor),
      // One that has ended has told so; whatever else is wrong with it ends it.
      ...held.map(({ connection }) => connection?.keep(this.ttlMs).catch(ignore)),
    ])
    for (const id of answer.forced) await this.#giveBack(id)
    // The server says that it is their turn; their own connections are about to say so as well.
    for (const id of answer.turns) await this.#holdings.byId(id)?.settled.catch(ignore)
  }

  async #lookForForced(): Promise<void> {
    const { forced } = await this.#main.keep(this.ttlMs)
    for (const id of forced) await this.#giveBack(id)
  }

  /** An operator wants it back. */
  async #giveBack(id: string): Promise<void> {
    const holding = this.#holdings.byId(id)
    if (holding?.state === 'held') {
      this.#lost.set(holding.attempt, 'force-released')
      await this.#leave(holding, new AbortController().signal)
    }
    await this.#main.unforce(this.#main.key, id)
  }

  async #lostOf(claims: readonly Claim[], call: Call): Promise<readonly LostClaim[]> {
    const lost: LostClaim[] = []
    for (const { attempt, name } of claims) {
      if (this.#holdings.get(attempt) !== undefined || this.#onTheWay.has(attempt)) continue
      lost.push({ attempt, reason: this.#lost.get(attempt) ?? (await this.#whatBecameOf(name, call)) })
    }
    return lost
  }

  async #whatBecameOf(name: string, { signal }: Call): Promise<LossReason> {
    const { sql, namespace } = this.#links
    const [state] = statesOf(await this.#links.query(sql.show, [namespace, name, 'name'], signal))
    return (state?.holders.length ?? 0) > 0 ? 'taken-over' : 'deleted'
  }

  #grantOf({ name, attempt, token }: Holding): Grant<'fenced'> {
    return { name, attempt, token, since: this.#prolongedAt, ttlMs: this.ttlMs }
  }

  #unlessEnded(error: unknown): void {
    if (!this.#ended) throw error
  }

  /** The connection is gone, and so is everything that stood on it. */
  #finish(): void {
    if (this.#ended) return
    this.#markEnded()
    this.#main.drop()
    this.#waits.close().catch(ignore)
  }

  #markEnded(): void {
    this.#ended = true
    this.#links.ears.remove(this.#main.key)
    this.#holdings.clear()
    this.#onEnd()
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

function collision(name: string, other: string, key: string): InvalidArgumentError {
  return new InvalidArgumentError(
    'name',
    `${quote(name)} has the same advisory key as ${quote(other)} (${key}), which is held now. The two exclude each other ` +
      'although they are not the same: let key(name) spread names over all 64 bits, or use the default.',
  )
}

const LOCK_TABLE_IS_FULL = '53200'

function failed(name: string, problem: string): HoldfastError {
  const remedy = remedyOf(problem.split(' ', 1)[0] ?? '')
  if (remedy !== null)
    return new UnsupportedError(`${NAME}: acquire of ${quote(name)}: SQLSTATE ${problem}. ${remedy}`)
  const advice = problem.startsWith(LOCK_TABLE_IS_FULL)
    ? "; the server's lock table is full: raise max_locks_per_transaction"
    : ''
  return new BackendUnavailableError(
    NAME,
    `acquire of ${quote(name)}: SQLSTATE ${problem}${advice}`,
    'not-applied',
  )
}
