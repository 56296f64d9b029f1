/** A session: one lease, and everything that rides on it. */
import type { Instant } from '../../base/clock.ts'
import { publicIdOf } from '../../base/ids.ts'
import {
  get,
  getAll,
  isLeaseNotFound,
  methods,
  onCondition,
  remove,
  type TxnRequest,
} from '../../clients/etcd/index.ts'
import { PredecessorQueue } from '../../kit/predecessor-queue.ts'
import { SessionBase } from '../../kit/session.ts'
import type {
  AcquireRequest,
  AcquireResult,
  Call,
  Claim,
  EnqueueResult,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
} from '../../spi.ts'
import { BACKEND, type Connection } from './connection.ts'
import { prolong } from './keeping.ts'
import { isClaim, kinds, leaseOf, partsOfGrant } from './keys.ts'
import type { SessionRef, Statements } from './statements.ts'
import { ClaimStore } from './store.ts'

export class EtcdSession<Since extends Instant | null = Instant> extends SessionBase<'fenced', Since> {
  readonly #connection: Connection
  readonly #ref: SessionRef
  readonly #statements: Statements
  readonly #queue: PredecessorQueue

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
    const { clock, random } = connection
    const session = () => ({ since: this.prolongedAt, ttlMs })
    this.#queue = new PredecessorQueue({ backend: BACKEND, store, clock, random, session })
    connection.queues.add(this.#queue)
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { held, waiting } = this.withoutInFlight(listed)
    const reads = held.map((claim) => get(this.#keyOf(claim), { keys_only: true }))
    const since = await prolong(this.#connection, this.#ref, call)
    if (since === null) {
      this.#end()
      return { kind: 'gone' }
    }
    this.prolonged(since)
    const [found, attached, checked, looked] = await Promise.all([
      this.#connection.readEach(reads, call),
      this.#connection.client.ask(methods.leaseTimeToLive, { ID: this.#ref.lease, keys: true }, call),
      this.#queue.check(waiting, call),
      Promise.all(waiting.map(({ name }) => this.#connection.look(name, call))),
    ])
    const revisions = new Map(found.map(({ key, revision }) => [key, revision]))
    const isHeld = (claim: GrantedClaim) =>
      revisions.get(this.#keyOf(claim)) === (partsOfGrant(claim.grantId)?.revision ?? 0)
    const missing: Claim[] = held.filter((claim) => !isHeld(claim))
    const granted = new Map(checked.map((grant) => [grant.attempt, grant]))
    for (const [index, claim] of waiting.entries()) {
      const own = looked[index]?.claims.find(({ attempt }) => attempt === claim.attempt)
      if (granted.has(claim.attempt)) continue
      if (own === undefined) missing.push(claim)
      else if (own.granted) granted.set(claim.attempt, this.grantOf(claim, { token: own.token }))
    }
    const lost = await Promise.all(missing.map((claim) => this.#lossOf(claim, call)))
    const known = new Set([...held, ...waiting].map(({ attempt }) => attempt))
    for (const { attempt } of missing) known.delete(attempt)
    const unlisted = await this.#unlisted(attached.keys, known, call)
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted: [...granted.values()], unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    if (!(await this.#isAlive(call))) return { kind: 'session-gone' }
    return this.#queue.tryAcquire(request, call)
  }

  async enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    if (!(await this.#isAlive(call))) return { kind: 'session-gone' }
    return this.#queue.enqueue(request, call)
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    await this.#commit(claim, this.#statements.abandon(claim), call)
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const grant = partsOfGrant(claim.grantId)
    const { claims } = await this.#connection.read([get(this.#keyOf(claim))], call)
    const own = claims.find(({ revision }) => revision === grant?.revision)
    if (grant === null || own === undefined) return 'not-held'
    const { owner, session } = own.record
    const by = { id: publicIdOf(claim.attempt), holder: session.holder, token: claim.grantId }
    const record = { data, ...by, ...(owner !== undefined && { owner }) }
    const isStored = await this.#commit(claim, this.#statements.setData(claim, grant, record), call)
    return isStored ? 'stored' : 'not-held'
  }

  async release(
    claim: GrantedClaim,
    { keepForMs }: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    this.#connection.lifetime.begin(call)
    const grant = partsOfGrant(claim.grantId)
    if (grant === null) return 'not-held'
    const closedBy = keepForMs > 0 ? await this.#leaseFor(keepForMs, call) : null
    const request = this.#statements.release(claim, grant, closedBy)
    // The lease on which it is closed may be over. Then only this release fails, and not a batch.
    const isReleased =
      closedBy === null
        ? await this.#commit(claim, request, call)
        : (await this.#connection.transact(request, call)).succeeded
    return isReleased ? 'released' : 'not-held'
  }

  async close(call: Call): Promise<void> {
    const { lease } = this.#ref
    // The key goes first: watchers read claims that are deleted together with their session's key as expired.
    const deletion = [remove(this.#connection.keys.session(lease))]
    await this.#connection.transact(onCondition([this.#statements.alive()], deletion), call)
    await this.#connection.client.ask(methods.leaseRevoke, { ID: lease }, call).catch((error: unknown) => {
      if (!isLeaseNotFound(error)) throw error
    })
    this.#end()
  }

  #end(): void {
    this.#queue.end({ kind: 'session-gone' })
    this.#connection.queues.delete(this.#queue)
  }

  /** An attached session does not know its time before it has been prolonged. */
  async #isAlive(call: Call): Promise<boolean> {
    this.#connection.lifetime.begin(call)
    if (this.hasBeenProlonged) return true
    return (await this.keepAlive({ held: [], waiting: [] }, call)).kind === 'alive'
  }

  async #commit(claim: Claim, request: TxnRequest, call: Call): Promise<boolean> {
    return (await this.#connection.commit(claim.name, () => request, call)).branch === 'first'
  }

  /** If the release is not applied, the lease ends by itself. */
  async #leaseFor(keepForMs: number, call: Call): Promise<number> {
    const { client, namespace, random } = this.#connection
    const ID = leaseOf(namespace, random.id())
    await client.ask(methods.leaseGrant, { TTL: Math.ceil(keepForMs / 1_000), ID }, call)
    return ID
  }

  #keyOf(claim: GrantedClaim): string {
    return this.#statements.key(claim, partsOfGrant(claim.grantId)?.kind ?? kinds[0])
  }

  async #lossOf({ name, attempt }: Claim, call: Call): Promise<LostClaim> {
    const { keys } = this.#connection
    const mark = get(keys.mark(this.#ref.lease, attempt))
    const found = await this.#connection.read([mark, getAll(keys.part(name, 'p', 'w'))], call)
    if (found.mark?.reason === 'force-released') return { attempt, ...found.mark, reason: 'force-released' }
    const isTaken = found.claims.some((claim) => claim.granted && claim.attempt !== attempt)
    return { attempt, reason: isTaken ? 'taken-over' : 'deleted' }
  }

  /** Of the keys on the lease, which the leader lists, those that were not named. They are read, because the list may be old. */
  async #unlisted(attached: readonly string[], known: ReadonlySet<string>, call: Call): Promise<Claim[]> {
    const unlisted = attached.filter((key) => {
      const parsed = this.#connection.keys.parse(key)
      return parsed !== null && isClaim(parsed.kind) && !known.has(parsed.attempt)
    })
    if (unlisted.length === 0) return []
    const claims = await this.#connection.readEach(
      unlisted.map((key) => get(key, { keys_only: true })),
      call,
    )
    return claims.map(({ name, attempt }) => ({ name, attempt }))
  }
}
