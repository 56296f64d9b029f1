/**
 * One session's claims at ZooKeeper. What may go wrong between the steps of its writes:
 *
 *   join       one transaction: the node of the attempt, the claim behind all others, and a write to the container, whose answer counts its
 *              children. Only one: nothing older is in the way, so the claim is granted by its creation (a derived grant).
 *              Lost answer: nobody knows the grant, and core abandons the attempt, so no ghost stays (T10, ghost nodes). A copy that
 *              lands later finds the attempt's node (T73, late originals); after the end of the session, no session.
 *   look       reads the names of the children. This connection has seen the own node, so it has seen every older one. What is older can
 *              only disappear, so "eligible" stays true, but for a changed capacity.
 *   confirm    after waiting, writes the own node, on condition that it was not written before. The grant is this write, so its token is not
 *              older than the wait (C54, tokens drawn at the grant). A pause before it: the session may have ended, and the node with it. Lost answer: the next look
 *              finds that the node was written. For permits the same transaction asks whether the capacity is the one that was seen; that
 *              none was changed, it asks by creating and deleting the node.
 *   release    names the path and the version of the grant, so it never hits a successor (G7). It writes into the container who has
 *              released: so watchers tell it from the end of the session, even if the session ends next.
 *   abandon    deletes the claim and the attempt's node. If a join may still land, the attempt's node is marked and stays: of what lands
 *              before that, the deletion comes after; what comes later is refused. A re-attachment ends the connection on which a copy may
 *              be, so after the next keep-alive the mark goes as well (`#ended`).
 *   container  ZooKeeper deletes it when it has been empty for a while. A join that guessed wrong is refused, and guesses again (`#create`).
 *              Before its sequence numbers end, the name starts anew (`#startAnew`).
 *   full       the end of a session lists all of its nodes in one transaction, so a session refuses joins before that is too large.
 *   prolong    a re-attachment, and a commit on the same connection. Pings, reads and forwarded writes prove nothing (T62, cut-off
 *              followers; T91, asymmetric stalls).
 */
import { elapsedMs, type Instant } from '../../../base/clock.ts'
import { TransientMap } from '../../../base/transient-map.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import {
  type ClaimRecord,
  claimRecord,
  type DataRecord,
  type MarkRecord,
  type SessionRecord,
} from '../../../kit/claim-records.ts'
import type { ClaimStore, GrantedByStore, Joined, Prolonged } from '../../../kit/conditional-store.ts'
import { Lane } from '../../../kit/lane.ts'
import type { QueueEntry, QueueView, WatchedKey } from '../../../kit/ordered-store.ts'
import { whileQueued } from '../../../kit/store-queue.ts'
import { type QueuedClaim, StoredName } from '../../../kit/stored-name.ts'
import type { AcquireRequest, Call, Claim, GrantedClaim } from '../../../spi.ts'
import type { Part, Refused, Reply, Session, Stat, WatchTold } from '../client/index.ts'
import { Batches, type Committed } from './batches.ts'
import { BACKEND, type Connection, LeaderTime, malformed, unavailable } from './connection.ts'
import { type ClaimPath, type Keys, LAST_SEQUENCE, tokenOf } from './keys.ts'
import {
  claimData,
  endedData,
  foundClaim,
  parse,
  seenClaim,
  sessionData,
  type ZooKeeperClaim,
} from './records.ts'

/** A session as its requests name it. `path`: of its node. */
export interface SessionRef {
  readonly session: Session
  readonly path: string
  readonly record: SessionRecord
}

type Queue = StoredName<QueuedClaim>

/**
 * ZooKeeper ends a session in one transaction that lists all its ephemeral nodes. Members cannot read one of more than 2 MiB (by default:
 * `jute.maxbuffer` and its `extrasize`), so one leader after the other stops for good (ZOOKEEPER-4306). Half of it is room for marks.
 */
const MOST_BYTES = 2 ** 20

/** Keep-alives come every third of a session's time. */
const OVERDUE = 2 / 3

/** A guess is wrong when ZooKeeper has reaped the container, or another process has made it. Both can happen in a row. */
const MAX_GUESSES = 5

/** An upper bound for a claim, which has two nodes: `path` is that of the claim, and the path of its attempt is shorter. */
const bytesOf = (path: string) => 2 * Buffer.byteLength(path)

const ABANDONED = '{"reason":"abandoned"}'

class OwnClaims extends TransientMap<string, ZooKeeperClaim> {
  /** The size of the paths of their nodes. */
  bytes = 0

  override set(attempt: string, claim: ZooKeeperClaim): void {
    if (!this.has(attempt)) this.bytes += bytesOf(claim.key)
    super.set(attempt, claim)
  }

  override delete(attempt: string): boolean {
    this.bytes -= bytesOf(this.get(attempt)?.key ?? '')
    return super.delete(attempt)
  }
}

export class ZooKeeperClaims implements ClaimStore<QueuedClaim> {
  readonly comparesOrder = false
  readonly #connection: Connection
  readonly #keys: Keys
  readonly #ref: SessionRef
  readonly #session: Session
  readonly #batches: Batches
  readonly #looks: Lane<string, Queue>
  readonly #leaderTime: LeaderTime
  /** Claims whose node this process has written or read. */
  readonly #own = new OwnClaims()
  /** The same for claims whose join is in flight. */
  #joining = 0
  /** Attempts that are over, and whose node may be there. */
  #ended = new Set<string>()
  /** When the session was prolonged last; null if it was never here. */
  #prolongedAt: Instant | null
  /** Wake-ups that wait for the next keep-alive. */
  #wakes: (() => void)[] = []

  constructor(connection: Connection, ref: SessionRef) {
    const { clock, keys } = connection
    this.#connection = connection
    this.#keys = keys
    this.#ref = ref
    this.#session = ref.session
    this.#prolongedAt = ref.session.since
    this.#batches = new Batches(ref.session, clock)
    this.#looks = new Lane({
      backend: BACKEND,
      clock,
      maxBatch: Number.POSITIVE_INFINITY,
      send: (names, call) => this.#lookAt(names, call),
    })
    this.#leaderTime = new LeaderTime(clock)
  }

  async join(request: AcquireRequest, _mayWait: boolean, call: Call): Promise<Joined<QueuedClaim>> {
    const record = this.#recordOf(request)
    const bytes = bytesOf(this.#keys.claim(request))
    if (this.#bytes > MOST_BYTES && !this.#own.has(request.attempt))
      throw unavailable('the session has all the claims that ZooKeeper can end at once', 'not-applied')
    this.#joining += bytes
    const committed = await this.#create(request, record, call).finally(() => {
      this.#joining -= bytes
    })
    if (!committed.ok) return this.#refused(request, committed, call)
    const [claim, container] = committed.results.slice(-2)
    const path = this.#keys.parseClaim(claim?.path ?? '')
    if (path === null || container?.stat === undefined) throw malformed()
    this.#leaderTime.saw(container.stat.mtimeMs)
    if (path.order >= LAST_SEQUENCE) return this.#startAnew(path, call)
    const granted = container.stat.numChildren === 1
    const token = await this.#tokenOf(container.stat, committed, path, call)
    const own = this.#has({ ...path, record, owner: this.#session.id, version: 0, granted, token })
    return granted ? { kind: 'granted', token } : whileQueued(this.#queued(request, own, call))
  }

  /** Waiters that look at one name at the same moment share the read. */
  async look(claim: Claim, call: Call): Promise<Queue> {
    const name = await this.#looks.ask(claim.name, call)
    const unknown = this.#own.has(claim.attempt) ? undefined : name.claim(claim.attempt)
    // Another process has made it, and only its node tells whether it was granted.
    if (unknown === undefined || (await this.#find(unknown.key, call)) === undefined) return name
    return this.#looks.ask(claim.name, call)
  }

  get isFull(): boolean {
    return this.#bytes > MOST_BYTES / 2
  }

  get #bytes(): number {
    return this.#own.bytes + this.#joining
  }

  async isAlive(call: Call): Promise<boolean> {
    return (await this.#session.ask({ op: 'exists', path: this.#ref.path }, call)).ok
  }

  async confirm(
    request: AcquireRequest,
    { key }: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<GrantedByStore | Queue> {
    const { name, mode } = request
    const record = this.#recordOf(request)
    const capacity = mode === 'permits' ? this.#sameCapacity(name, seen) : []
    const build = (position: number): Part[] => [
      { op: 'setData', path: key, data: claimData(record, position), version: 0 },
      ...capacity,
    ]
    const cell = this.#keys.of(name, 'data')
    const committed = await this.#batches.commit(name, build, call, cell)
    if (committed.ok) {
      const [stat, path] = [committed.results[0]?.stat, this.#keys.parseClaim(key)]
      if (stat === undefined || path === null) throw malformed()
      const token = await this.#tokenOf(stat, committed, path, call)
      this.#has({ ...path, record, owner: this.#session.id, version: stat.version, granted: true, token })
      return { kind: 'granted', token, previousData: dataOf(await committed.read) }
    }
    // An earlier confirm, whose answer was lost, has granted it.
    const own = committed.code === 'bad-version' ? await this.#find(key, call) : undefined
    if (own?.granted !== true) return this.look(request, call)
    const read = await this.#session.ask({ op: 'getData', path: cell }, call)
    return { kind: 'granted', token: own.token, previousData: dataOf(read) }
  }

  async leave({ name, attempt }: AcquireRequest, call: Call): Promise<void> {
    const own = this.#own.get(attempt)
    if (own === undefined || own.granted) return
    const parts = [deletion(own.key, 0), deletion(this.#keys.attempt(attempt))]
    const committed = await this.#batches.commit(name, () => parts, call)
    if (!committed.ok && committed.code === 'no-node') this.#ended.add(attempt)
    if (committed.ok || committed.code === 'no-node') this.#own.delete(attempt)
  }

  async release(claim: GrantedClaim, keepForMs: number, call: Call): Promise<boolean> {
    const own = await this.held(claim, call)
    if (own === undefined) return false
    const { name } = claim
    const kept = this.#keys.of(name, `kept.${Math.ceil(keepForMs)}.`)
    const closing: Part[] = keepForMs > 0 ? [{ op: 'create', path: kept, mode: 'persistent-sequential' }] : []
    const committed = await this.#end(own, own.version, closing, call)
    if (!committed.ok) return false
    const { path } = committed.results.at(-1) ?? {}
    if (path !== undefined) this.#connection.cleanIn(keepForMs, path)
    return true
  }

  async remove(claim: Claim, isSettled: boolean, call: Call): Promise<void> {
    const own = this.#own.get(claim.attempt)
    if (isSettled) {
      if (own !== undefined) await this.#end(own, undefined, [], call)
      return
    }
    this.#own.delete(claim.attempt)
    for (const path of await this.#pathsOf(claim, call))
      await this.#batches.commit(claim.name, () => [deletion(path)], call)
  }

  async mark({ attempt }: Claim, call: Call): Promise<void> {
    const path = this.#keys.attempt(attempt)
    this.#ended.add(attempt)
    // It is written until it is there: a release may delete the node in between.
    for (;;) {
      const creation = { op: 'create', path, data: ABANDONED, mode: 'ephemeral' } as const
      const created = await this.#session.ask(creation, call)
      if (created.ok || created.code !== 'node-exists') return
      const written = await this.#session.ask({ op: 'setData', path, data: ABANDONED }, call)
      if (written.ok || written.code !== 'no-node') return
    }
  }

  /** Asked for claims that are lost: the node has told its reason then, and may go. */
  markOf({ attempt }: Claim, call: Call): Promise<MarkRecord | undefined> {
    this.#ended.add(attempt)
    return this.#markAt(attempt, call)
  }

  async held(claim: GrantedClaim, call: Call): Promise<ZooKeeperClaim | undefined> {
    const own = this.#own.get(claim.attempt) ?? (await this.#locate(claim, call))
    return String(own?.token) === claim.grantId ? own : undefined
  }

  async putData({ name, attempt, key }: QueuedClaim, record: DataRecord, call: Call): Promise<boolean> {
    const own = this.#own.get(attempt)
    if (own?.key !== key || String(own.token) !== record.token) return false
    const [path, data] = [this.#keys.of(name, 'data'), JSON.stringify(record)]
    const isHeld: Part = { op: 'check', path: key, version: own.version }
    // Another holder may create the cell, and an operator may delete it, in between.
    for (let isThere = true; ; isThere = !isThere) {
      const write: Part = { op: isThere ? 'setData' : 'create', path, data }
      const written = await this.#batches.commit(name, () => [isHeld, write], call)
      if (written.ok || written.part !== 1) return written.ok
    }
  }

  async prolong(held: readonly GrantedClaim[], call: Call): Promise<Prolonged | null> {
    const ended = this.#ended
    this.#ended = new Set()
    const { path, record } = this.#ref
    const write = { op: 'setData', path, data: sessionData(record, this.#session) } as const
    const list = { op: 'getEphemerals', path: this.#keys.names } as const
    try {
      const prolonged = await this.#session.prolong([write, list], call)
      if (prolonged === null) return null
      const { since, timeoutMs: ttlMs, replies } = prolonged
      const [written, listed] = replies
      if (!written.ok || !listed.ok) return null
      this.#leaderTime.saw(written.stat.mtimeMs)
      this.#prolongedAt = since
      for (const wake of this.#wakes.splice(0)) wake()
      for (const attempt of ended) this.#connection.clean(this.#session, this.#keys.attempt(attempt))
      ended.clear()
      const claims = listed.paths.map((each) => this.#keys.parseClaim(each)).filter((each) => each !== null)
      return { since, ttlMs, lost: await this.#lost(held, claims, call), besides: claims }
    } finally {
      for (const attempt of ended) this.#ended.add(attempt)
    }
  }

  ended({ attempt }: Claim): void {
    this.#own.delete(attempt)
  }

  capacityKey(name: string): string {
    return this.#keys.of(name, 'capacity')
  }

  close(call: Call): Promise<void> {
    return this.#session.end(call)
  }

  /** A look at the key is watched, and what it finds is compared, because the queue was read before (T19, lost wake-ups). */
  watch(
    keys: readonly WatchedKey[],
    version: bigint,
    onWake: (wake: 'changed' | 'lost') => void,
  ): () => void {
    const tells = new Map<string, (told: WatchTold) => void>()
    const stop = () => {
      for (const [path, tell] of tells) this.#session.unwatch(path, tell)
      tells.clear()
    }
    const end = (wake: 'changed' | 'lost') => {
      if (tells.size === 0) return
      if (wake === 'changed' && this.#isOverdue) return void this.#wakes.push(() => end(wake))
      stop()
      onWake(wake)
    }
    const begin = ({ key: path, until }: WatchedKey) => {
      const tell = (told: WatchTold) => {
        if (told === 'changed' && until === 'deleted') begin({ key: path, until })
        else end(told === 'lost' ? 'lost' : 'changed')
      }
      tells.set(path, tell)
      const isClaim = this.#keys.parseClaim(path) !== null
      // The capacity is watched for before it is there.
      this.#session.watch({ op: isClaim ? 'getData' : 'exists', path }, tell, neverCancelled).then(
        (reply) => {
          const isLate = reply.ok ? until === 'changed' && reply.stat.mzxid > version : isClaim
          if (isLate && tells.get(path) === tell) end('changed')
        },
        () => end('lost'),
      )
    }
    for (const key of keys) begin(key)
    return stop
  }

  /**
   * Nobody keeps the session alive. Every request prolongs it, so a waiter of it that looks would stay in front of others for one TTL
   * more. It looks after the next keep-alive.
   */
  get #isOverdue(): boolean {
    const since = this.#prolongedAt
    return since === null || elapsedMs(this.#connection.clock, since) > this.#session.timeoutMs * OVERDUE
  }

  /** Sends one transaction, and another one if the guess about the container was wrong: then nothing was applied. */
  async #create(request: AcquireRequest, record: ClaimRecord, call: Call): Promise<Committed | Refused> {
    const { name, attempt } = request
    const path = this.#keys.name(name)
    for (let guesses = 1; ; guesses++) {
      const hasContainer = this.#connection.hasContainer(name)
      const build = (position: number): Part[] => [
        { op: 'create', path: this.#keys.attempt(attempt), mode: 'ephemeral' },
        ...(hasContainer ? [] : [{ op: 'create', path, mode: 'container' } as const]),
        {
          op: 'create',
          path: this.#keys.claim(request),
          data: claimData(record, position),
          mode: 'ephemeral-sequential',
        },
        { op: 'setData', path, data: '' },
      ]
      const committed = await this.#batches.commit(name, build, call)
      const isWrong = !committed.ok && committed.part === 1 && committed.code !== 'session-gone'
      if (committed.ok || isWrong) this.#connection.setContainer(name, committed.ok || !hasContainer)
      if (!isWrong || guesses === MAX_GUESSES) return committed
    }
  }

  async #refused(request: AcquireRequest, { code, part }: Refused, call: Call): Promise<Joined<QueuedClaim>> {
    if (code === 'session-gone') return { kind: 'session-gone' }
    const { attempt } = request
    if (part !== 0 || code !== 'node-exists')
      throw unavailable(`a join was refused (${code}, part ${part})`, 'not-applied')
    if ((await this.#markAt(attempt, call)) !== undefined) return { kind: 'abandoned' }
    const own = this.#own.get(attempt)
    if (own === undefined)
      throw unavailable('the attempt was joined before, and nobody here knows its grant', 'unknown')
    if ((await this.#find(own.key, call)) === undefined) {
      // Somebody else has deleted the claim, and not the attempt's node.
      this.#own.delete(attempt)
      await this.#session.ask({ op: 'delete', path: this.#keys.attempt(attempt) }, call)
      return this.join(request, true, call)
    }
    if (own.granted) return { kind: 'granted', token: own.token }
    return { kind: 'refused', name: await this.look(request, call) }
  }

  async #queued(request: AcquireRequest, own: ZooKeeperClaim, call: Call): Promise<Joined<QueuedClaim>> {
    const name = await this.look(request, call)
    if (name.claim(request.attempt) === undefined) throw unavailable('its claim has gone already', 'unknown')
    const isOther = ({ order, mode }: QueuedClaim) =>
      order < own.order && (mode === 'permits') !== (request.mode === 'permits')
    if (!name.claims.some(isOther)) return { kind: 'created', own, name }
    await this.leave(request, call)
    return { kind: 'refused', name: await this.look(request, call) }
  }

  /** The numbers of a name are used up. When nothing but its data is there, its container is replaced, and they start at 0. */
  async #startAnew(claim: ClaimPath, call: Call): Promise<never> {
    const [path, cell] = [this.#keys.name(claim.name), this.#keys.of(claim.name, 'data')]
    await this.#withdraw(claim, call)
    const data = await this.#session.ask({ op: 'getData', path: cell }, call)
    const replaced: Part[] = [deletion(path), { op: 'create', path, mode: 'container' }]
    const all: Part[] = data.ok
      ? [deletion(cell, data.stat.version), ...replaced, { op: 'create', path: cell, data: data.data }]
      : replaced
    await this.#session.ask({ op: 'multi', parts: all }, call)
    throw unavailable(
      'the sequence numbers of the name are used up, and start anew when it is free',
      'not-applied',
    )
  }

  /** The error of a write whose transaction no token can name says that nothing was done. */
  async #tokenOf({ mzxid }: Stat, { position }: Committed, path: ClaimPath, call: Call): Promise<bigint> {
    try {
      return tokenOf(mzxid, position)
    } catch (error) {
      await whileQueued(this.#withdraw(path, call))
      throw error
    }
  }

  async #withdraw({ name, attempt, key }: ClaimPath, call: Call): Promise<void> {
    this.#own.delete(attempt)
    await this.#batches.commit(name, () => [deletion(key), deletion(this.#keys.attempt(attempt))], call)
  }

  /** Ends an own claim: whatever it is, or only if it has this version. */
  async #end(
    own: ZooKeeperClaim,
    version: number | undefined,
    closing: readonly Part[],
    call: Call,
  ): Promise<Committed | Refused> {
    const { name, attempt, key } = own
    const [claim, node] = [deletion(key, version), deletion(this.#keys.attempt(attempt))]
    const others: Part[] = [{ op: 'setData', path: this.#keys.name(name), data: endedData(own) }, ...closing]
    let committed = await this.#batches.commit(name, () => [claim, node, ...others], call)
    // Somebody else has deleted the attempt's node.
    if (!committed.ok && committed.part === 1)
      committed = await this.#batches.commit(name, () => [claim, ...others], call)
    this.#own.delete(attempt)
    if (!committed.ok) this.#ended.add(attempt)
    return committed
  }

  async #lost(
    held: readonly GrantedClaim[],
    claims: readonly ClaimPath[],
    call: Call,
  ): Promise<readonly GrantedClaim[]> {
    const keys = new Map(claims.map(({ attempt, key }) => [attempt, key]))
    const found = await Promise.all(
      held.map(async ({ attempt }) => {
        const key = keys.get(attempt)
        if (key === undefined) return undefined
        const own = this.#own.get(attempt)
        return own?.key === key ? own : this.#find(key, call)
      }),
    )
    return held.filter(({ grantId }, index) => String(found[index]?.token) !== grantId)
  }

  async #locate(claim: Claim, call: Call): Promise<ZooKeeperClaim | undefined> {
    const [path] = await this.#pathsOf(claim, call)
    return path === undefined ? undefined : this.#find(path, call)
  }

  /** Reads the node of an own claim. */
  async #find(key: string, call: Call): Promise<ZooKeeperClaim | undefined> {
    const path = this.#keys.parseClaim(key)
    const reply = await this.#session.ask({ op: 'getData', path: key }, call)
    if (path === null || !reply.ok || reply.stat.ephemeralOwner !== this.#session.id) return undefined
    const found = foundClaim(path, reply.data, reply.stat)
    const known = this.#own.get(path.attempt)
    return this.#has(known?.key === key && known.version === found.version ? known : found)
  }

  async #pathsOf({ name, attempt }: Claim, call: Call): Promise<string[]> {
    const reply = await this.#session.ask({ op: 'getEphemerals', path: this.#keys.name(name) }, call)
    if (!reply.ok) return []
    return reply.paths.filter((path) => {
      const claim = this.#keys.parseClaim(path)
      return claim?.attempt === attempt && claim.name === name
    })
  }

  async #markAt(attempt: string, call: Call): Promise<MarkRecord | undefined> {
    const reply = await this.#session.ask({ op: 'getData', path: this.#keys.attempt(attempt) }, call)
    return reply.ok && reply.data !== '' ? parse<MarkRecord>(reply.data) : undefined
  }

  #lookAt(names: readonly string[], call: Call): Promise<Queue[]> {
    const unique = new Map([...new Set(names)].map((name) => [name, this.#read(name, call)]))
    return Promise.all(names.map((name) => unique.get(name) as Promise<Queue>))
  }

  async #read(name: string, call: Call): Promise<Queue> {
    const reply = await this.#session.ask({ op: 'getChildren', path: this.#keys.name(name) }, call)
    if (!reply.ok) return new StoredName<QueuedClaim>({ version: reply.zxid, claims: [] })
    const claims = this.#keys.claimsIn(name, reply.children).map((path) => {
      const own = this.#own.get(path.attempt)
      return own?.key === path.key ? own : seenClaim(path)
    })
    const { children, stat } = reply
    const read = { name, children, version: stat.version, leaderTime: this.#leaderTime }
    const others = await this.#connection.readOthers(this.#session, read, claims, call)
    return new StoredName<QueuedClaim>({ ...others, version: reply.zxid, claims, derivesGrants: true })
  }

  /** Refused if the capacity is not the one that was seen. Only nodes that exist can be checked, so an absent one is created and deleted. */
  #sameCapacity(name: string, seen: QueueView | null): Part[] {
    const path = this.#keys.of(name, 'capacity')
    const version = seen?.versions?.get('capacity')
    return version === undefined
      ? [{ op: 'create', path }, deletion(path)]
      : [{ op: 'check', path, version: Number(version) }]
  }

  #recordOf(request: AcquireRequest): ClaimRecord {
    return claimRecord(request, this.#ref.record, this.#connection.clock.wallMs())
  }

  #has(own: ZooKeeperClaim): ZooKeeperClaim {
    this.#own.set(own.attempt, own)
    return own
  }
}

function deletion(path: string, version?: number): Part {
  return version === undefined ? { op: 'delete', path } : { op: 'delete', path, version }
}

function dataOf(reply: Reply<'getData'> | undefined): string | undefined {
  return reply?.ok ? parse<DataRecord>(reply.data).data : undefined
}
