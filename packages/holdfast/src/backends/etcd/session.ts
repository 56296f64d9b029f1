/** A session: one lease, and everything that rides on it. */
import { type Instant, instantOf } from '../../base/clock.ts'
import { isHoldfastError } from '../../base/errors.ts'
import * as etcd from '../../clients/etcd/index.ts'
import { PredecessorQueue } from '../../kit/predecessor-queue.ts'
import { type Prolonged, QueueSession } from '../../kit/queue-session.ts'
import type {
  AcquireRequest,
  AcquireResult,
  Call,
  Claim,
  EnqueueResult,
  GrantedClaim,
  LostClaim,
} from '../../spi.ts'
import { type Connection, unavailable } from './connection.ts'
import { type GrantParts, leaseOf, modes, partsOfGrant } from './keys.ts'
import { Found, type FoundClaim } from './records.ts'
import type { SessionRef, Statements } from './statements.ts'
import { ClaimStore, wasAbandoned } from './store.ts'

export class EtcdSession<Since extends Instant | null = Instant> extends QueueSession<Since> {
  protected readonly queue: PredecessorQueue
  readonly #connection: Connection
  readonly #ref: SessionRef
  readonly #statements: Statements
  /** Attempts that were abandoned here. Those that have no mark at the engine are refused by this. */
  readonly #abandoned = new Set<string>()

  constructor(
    connection: Connection,
    ref: SessionRef,
    known: { readonly id: string; readonly since: Since },
  ) {
    const { holder, ttlMs } = ref.record
    super({ ...known, ttlMs, holder })
    this.#connection = connection
    this.#ref = ref
    const store = new ClaimStore(connection, ref, (claim, send) => this.asking(claim, send))
    this.#statements = store.statements
    const { clock, lifetime, random } = connection
    const session = () => ({ since: this.prolongedAt, ttlMs })
    this.queue = new PredecessorQueue({ lifetime, store, clock, random, session })
  }

  override async tryAcquire(request: AcquireRequest, call: Call) {
    return this.#acquire(request, () => super.tryAcquire(request, call), call)
  }

  override async enqueue(request: AcquireRequest, call: Call) {
    return this.#acquire(request, () => super.enqueue(request, call), call)
  }

  async #acquire<R extends EnqueueResult<'fenced'> | AcquireResult<'fenced'>>(
    request: AcquireRequest,
    ask: () => Promise<R>,
    call: Call,
  ): Promise<R> {
    const { slots } = this.#statements
    if (this.since === null) await this.#locate([request], call)
    if (this.#abandoned.has(request.attempt)) throw wasAbandoned()
    const isNew = slots.take(request)
    try {
      const result = await ask()
      // An attempt that was asked for before may have its position still.
      if (isNew && result.kind !== 'granted') slots.free(request)
      return result
    } catch (error) {
      // After an unknown outcome the attempt is abandoned later.
      const isUnknown = isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown'
      if (isNew && !isUnknown) slots.forget(request)
      throw error
    }
  }

  /**
   * Deletes the key. If a join may still land, the mark comes first: after it no copy can take a key. A full etcd refuses the
   * mark. Then what lands late is unlisted in the next keep-alive, and is deleted again (ADR 0022).
   */
  async abandon(claim: Claim, call: Call): Promise<void> {
    const { slots } = this.#statements
    this.#abandoned.add(claim.attempt)
    if (!slots.isSettled(claim)) {
      await this.#commit(claim, this.#statements.mark(claim), call).catch(unlessFull)
      if (!slots.knows(claim)) await this.#locate([claim], call)
    }
    if (slots.knows(claim)) await this.#commit(claim, this.#statements.remove(claim), call)
    slots.free(claim)
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const grant = partsOfGrant(claim.grantId)
    await this.#locate([claim], call)
    const { claims } = await this.#connection.read([etcd.get(this.#keyOf(claim))], call)
    const own = claims.find(({ revision }) => revision === grant?.revision)
    if (grant === null || own === undefined) return 'not-held'
    const { owner, session } = own.record
    const record = { data, id: own.id, holder: session.holder, token: claim.grantId }
    const cell = owner === undefined ? record : { ...record, owner }
    const request = this.#statements.setData(claim, grant, cell)
    const { branch } = await this.#connection.commit(claim.name, () => request, call, false)
    return branch === 'first' ? 'stored' : 'not-held'
  }

  async release(
    claim: GrantedClaim,
    { keepForMs }: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    this.#connection.lifetime.begin(call)
    const grant = partsOfGrant(claim.grantId)
    if (grant === null) return 'not-held'
    await this.#locate([claim], call)
    const closed = keepForMs > 0 ? await this.#releaseClosed(claim, grant, keepForMs, call) : null
    const { isReleased, isRepeated } =
      closed ?? (await this.#commit(claim, this.#statements.release(claim, grant, null), call))
    if (!isReleased && isRepeated)
      throw unavailable('the release was asked again, and an earlier copy may have been applied', 'unknown')
    const { slots } = this.#statements
    if (isReleased) slots.free(claim)
    else slots.forget(claim)
    return isReleased ? 'released' : 'not-held'
  }

  async close(call: Call): Promise<void> {
    const { client, keys } = this.#connection
    const { lease } = this.#ref
    // The key goes first: watchers read claims that are deleted together with their session's key as expired.
    const deletion = etcd.onCondition([this.#statements.alive()], [etcd.remove(keys.session(lease))])
    await this.#connection.transact(deletion, call, () => {})
    await etcd.revokeLease(client, lease, call)
    this.queue.end()
  }

  protected async prolong(held: readonly GrantedClaim[], call: Call): Promise<Prolonged | null> {
    const { client, clock, keys, lifetime } = this.#connection
    lifetime.begin(call)
    const since = instantOf(clock)
    await this.#locate(held, call)
    const { lease } = this.#ref
    // Without any read in it, a member would answer a transaction by itself, however old its state is.
    const reads = [keys.session(lease), ...held.map((claim) => this.#keyOf(claim))]
    const operations = reads.map((key) => etcd.get(key, { keys_only: true }))
    const check = etcd.onCondition([this.#statements.alive()], operations.slice(0, etcd.READS_AT_ONCE))
    const { isProlonged, response } = await etcd.prolongLease(client, lease, check, call)
    if (!response.succeeded) return null
    if (!isProlonged)
      throw unavailable('the leader has changed, and may not know of the keep-alive', 'unknown')
    const others = await etcd.readAll(client, operations.slice(etcd.READS_AT_ONCE), call)
    const kvs = [...etcd.kvsOf(response), ...others.kvs]
    const revisions = new Map(kvs.map(({ key, mod_revision }) => [key, mod_revision]))
    const isLost = (claim: GrantedClaim) =>
      revisions.get(this.#keyOf(claim)) !== (partsOfGrant(claim.grantId)?.revision ?? 0)
    return { since, lost: held.filter(isLost) }
  }

  protected async tokenOf({ name, attempt }: Claim, call: Call): Promise<bigint | null | undefined> {
    return (await this.#connection.look(name, call)).claim(attempt)?.token
  }

  protected async lossOf(claim: Claim, call: Call): Promise<LostClaim> {
    const { name, attempt } = claim
    const { keys } = this.#connection
    this.#statements.slots.forget(claim)
    const mark = etcd.get(keys.mark(this.#ref.lease, attempt))
    const claims = etcd.getAll(keys.part(name, 'exclusive', 'shared'))
    const found = await this.#connection.read([mark, claims], call)
    if (found.mark?.reason === 'force-released') return { attempt, ...found.mark, reason: 'force-released' }
    const isTaken = found.claims.some((claim) => claim.token !== null && claim.attempt !== attempt)
    return { attempt, reason: isTaken ? 'taken-over' : 'deleted' }
  }

  /** The leader lists the keys on the lease. They are read, because the list may be old. */
  protected async claimsBesides(known: ReadonlySet<string>, call: Call): Promise<Claim[]> {
    const { client, keys } = this.#connection
    const lease = { ID: this.#ref.lease, keys: true }
    const slots = new Set([...known].map((attempt) => this.#statements.slots.of(attempt)))
    const { keys: attached } = await client.ask(etcd.methods.leaseTimeToLive, lease, call)
    const claims = attached
      .map((key) => ({ key, ...keys.parse(key) }))
      .filter(({ mode }) => mode !== undefined)
    // A late join may have the slot of a known attempt, in another mode.
    const reads = [...Map.groupBy(claims, ({ id = '' }) => id)].flatMap(([id, found]) =>
      slots.has(id) && found.length === 1 ? [] : found.map(({ key }) => etcd.get(key)),
    )
    return (await this.#claimsIn(reads, call)).filter(({ attempt }) => !known.has(attempt))
  }

  /** Finds the keys of claims that another process has made. */
  async #locate(claims: readonly Claim[], call: Call): Promise<void> {
    const { slots } = this.#statements
    const unknown = new Map(
      claims.filter((claim) => !slots.knows(claim)).map((claim) => [claim.attempt, claim]),
    )
    const reads = [...unknown.values()].flatMap(({ name }) =>
      modes.map((mode) => etcd.getAll(this.#connection.keys.claims(name, mode, this.#ref.lease))),
    )
    for (const claim of await this.#claimsIn(reads, call))
      if (unknown.has(claim.attempt)) slots.set(claim, claim.slot)
  }

  async #claimsIn(reads: readonly etcd.Operation[], call: Call): Promise<readonly FoundClaim[]> {
    this.#connection.lifetime.begin(call)
    const { kvs, revision } = await etcd.readAll(this.#connection.client, reads, call)
    return new Found(this.#connection.keys, kvs, revision).claims
  }

  async #commit(claim: Claim, request: etcd.TxnRequest, call: Call): Promise<Released> {
    const { branch, isRepeated } = await this.#connection.commit(claim.name, () => request, call)
    return { isReleased: branch === 'first', isRepeated }
  }

  /**
   * Closes the name on a lease of its own. If the release is not applied, the lease ends by itself. Null: etcd is full, and refuses
   * what would keep the name closed. It refuses every new grant as well.
   */
  async #releaseClosed(
    claim: Claim,
    grant: GrantParts,
    keepForMs: number,
    call: Call,
  ): Promise<Released | null> {
    const { client, namespace, random } = this.#connection
    const ID = leaseOf(namespace, random.id())
    try {
      await etcd.grantLease(client, ID, keepForMs, call)
      // The lease may be over. Then only this release fails, and not a batch.
      const request = this.#statements.release(claim, grant, ID)
      let isRepeated = false
      const { succeeded } = await this.#connection.transact(request, call, () => {
        isRepeated = true
      })
      return { isReleased: succeeded, isRepeated }
    } catch (error) {
      return unlessFull(error)
    }
  }

  #keyOf(claim: GrantedClaim): string {
    return this.#statements.key(claim, partsOfGrant(claim.grantId)?.mode ?? 'exclusive')
  }
}

interface Released {
  readonly isReleased: boolean
  /** It was asked more than once. */
  readonly isRepeated: boolean
}

function unlessFull(error: unknown): null {
  if (etcd.isFull(error)) return null
  throw error
}
