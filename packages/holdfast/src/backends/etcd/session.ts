/** A session: one lease, and everything that rides on it. */
import { type Instant, instantOf } from '../../base/clock.ts'
import * as etcd from '../../clients/etcd/index.ts'
import { PredecessorQueue } from '../../kit/predecessor-queue.ts'
import { type Prolonged, QueueSession } from '../../kit/queue-session.ts'
import type { AcquireRequest, Call, Claim, GrantedClaim, LostClaim } from '../../spi.ts'
import { BACKEND, type Connection, READS_AT_ONCE, unavailable } from './connection.ts'
import { leaseOf, partsOfGrant } from './keys.ts'
import type { SessionRef, Statements } from './statements.ts'
import { ClaimStore } from './store.ts'

export class EtcdSession<Since extends Instant | null = Instant> extends QueueSession<Since> {
  protected readonly queue: PredecessorQueue
  readonly #connection: Connection
  readonly #ref: SessionRef
  readonly #statements: Statements

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
    this.queue = new PredecessorQueue({ backend: BACKEND, store, clock, random, session })
  }

  override async enqueue(request: AcquireRequest, call: Call) {
    this.#connection.queues.add(this.queue)
    return super.enqueue(request, call)
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    await this.#commit(claim, this.#statements.abandon(claim), call)
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const grant = partsOfGrant(claim.grantId)
    const { claims } = await this.#connection.read([etcd.get(this.#keyOf(claim))], call)
    const own = claims.find(({ revision }) => revision === grant?.revision)
    if (grant === null || own === undefined) return 'not-held'
    const { owner, session } = own.record
    const record = { data, id: own.id, holder: session.holder, token: claim.grantId }
    const cell = owner === undefined ? record : { ...record, owner }
    const isStored = await this.#commit(claim, this.#statements.setData(claim, grant, cell), call)
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
    const { client, keys, queues } = this.#connection
    const { lease } = this.#ref
    // The key goes first: watchers read claims that are deleted together with their session's key as expired.
    const deletion = etcd.onCondition([this.#statements.alive()], [etcd.remove(keys.session(lease))])
    await this.#connection.transact(deletion, call)
    await client.ask(etcd.methods.leaseRevoke, { ID: lease }, call).catch((error: unknown) => {
      if (!etcd.isLeaseNotFound(error)) throw error
    })
    this.queue.end({ kind: 'session-gone' })
    queues.delete(this.queue)
  }

  protected async prolong(held: readonly GrantedClaim[], call: Call): Promise<Prolonged | null> {
    const { client, clock, keys, lifetime } = this.#connection
    lifetime.begin(call)
    const since = instantOf(clock)
    const { lease } = this.#ref
    // Without any read in it, a member would answer a transaction by itself, however old its state is.
    const reads = [keys.session(lease), ...held.map((claim) => this.#keyOf(claim))]
    const operations = reads.map((key) => etcd.get(key, { keys_only: true }))
    const check = etcd.onCondition([this.#statements.alive()], operations.slice(0, READS_AT_ONCE))
    const { isProlonged, response } = await etcd.prolongLease(client, lease, check, call)
    if (!response.succeeded) return null
    if (!isProlonged)
      throw unavailable('the leader has changed, and may not know of the keep-alive', 'unknown')
    const others = await this.#connection.readAll(operations.slice(READS_AT_ONCE), call)
    const kvs = [...etcd.kvsOf(response), ...others.kvs]
    const revisions = new Map(kvs.map(({ key, mod_revision }) => [key, mod_revision]))
    const isLost = (claim: GrantedClaim) =>
      revisions.get(this.#keyOf(claim)) !== (partsOfGrant(claim.grantId)?.revision ?? 0)
    return { since, lost: held.filter(isLost) }
  }

  protected async tokenOf({ name, attempt }: Claim, call: Call): Promise<bigint | null | undefined> {
    const { claims } = await this.#connection.look(name, call)
    return claims.find((claim) => claim.attempt === attempt)?.token
  }

  protected async lossOf({ name, attempt }: Claim, call: Call): Promise<LostClaim> {
    const { keys } = this.#connection
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
    const attached = (await client.ask(etcd.methods.leaseTimeToLive, lease, call)).keys.filter((key) => {
      const { mode, attempt = '' } = keys.parse(key) ?? {}
      return mode !== undefined && !known.has(attempt)
    })
    const reads = attached.map((key) => etcd.get(key, { keys_only: true }))
    const { kvs } = await this.#connection.readAll(reads, call)
    return kvs.map(({ key }) => keys.parse(key)).filter((claim) => claim !== null)
  }

  async #commit(claim: Claim, request: etcd.TxnRequest, call: Call): Promise<boolean> {
    return (await this.#connection.commit(claim.name, () => request, call)).branch === 'first'
  }

  /** If the release is not applied, the lease ends by itself. */
  async #leaseFor(keepForMs: number, call: Call): Promise<number> {
    const { client, namespace, random } = this.#connection
    const ID = leaseOf(namespace, random.id())
    await client.ask(etcd.methods.leaseGrant, { TTL: Math.ceil(keepForMs / 1_000), ID }, call)
    return ID
  }

  #keyOf(claim: GrantedClaim): string {
    return this.#statements.key(claim, partsOfGrant(claim.grantId)?.mode ?? 'exclusive')
  }
}
