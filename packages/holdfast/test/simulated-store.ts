/**
 * A store with ordered keys and watches, in memory, for tests of the queue, of sessions, and of `describeStore`. A test may take its
 * network in hand: then requests, replies and events wait until the test delivers or loses them. Whatever is granted is judged
 * (`violations`).
 */
import { type Clock, instantOf } from '../src/base/clock.ts'
import { BackendUnavailableError } from '../src/base/errors.ts'
import { publicIdOf } from '../src/base/ids.ts'
import { cancelledCall, pageOf, throwIfCancelled } from '../src/kit/backend-kit.ts'
import { claimRecord, type DataRecord, type MarkRecord } from '../src/kit/claim-records.ts'
import type { ClaimStore, GrantedByStore, Joined, NameStore } from '../src/kit/conditional-store.ts'
import type { OrderedStore, QueueEntry, QueueView, WatchedKey } from '../src/kit/ordered-store.ts'
import { StoreQueue } from '../src/kit/store-queue.ts'
import { type StoredClaim, StoredName } from '../src/kit/stored-name.ts'
import type { AcquireRequest, Call, Claim, GrantedClaim } from '../src/spi.ts'
import { createFakeClock } from '../src/testing/fake-clock.ts'

/**
 * `ranges`: a write can ask whether anything older is left, and views of locks have the youngest blocker only (etcd).
 * `lists`: a write can only ask about the own key, and every view has all that is older. No key expires by itself.
 * `derives`: as `lists`, and a join that finds nothing older in its way is granted without a second write (ZooKeeper, Consul). A
 * prolongation tells all that the session has.
 */
export type StoreKind = 'ranges' | 'lists' | 'derives'

/** Planted breaks, which the tests must notice. */
export type StoreBreak =
  | 'grants without the check'
  | 'confirms any key of the attempt'
  | 'token drawn at join'
  | 'watches from now on'
  | 'joins after the mark'
  | 'joins twice'
  | 'leaves what is granted'
  | 'releases whatever the attempt has'
  | 'removes any claim of the name'
  | 'writes data of an ended grant'
  | 'ends what was granted since'
  | 'deletes data in use'
  | 'keeps the claims of an ended session'
  | 'grants beside a changed capacity'
  | 'looks derive grants'
  | 'a name stays closed'
  | 'tells no time of a closed name'
  | 'tells of holders only'
  | 'a full engine refuses removes'
  | 'a full engine rejects marks'
  | 'a late join is not told'
  | 'finds a session that has gone'

export interface Entry extends Omit<StoredClaim, 'granted' | 'token' | 'capacity'> {
  readonly session: string
  /** As it was asked for. */
  readonly asked: number
  token: bigint | null
  /** Granted by its creation. */
  isDerived: boolean
}

interface NameRecord {
  readonly entries: Entry[]
  /** `untilMs`: by the store's clock. */
  readonly closedBy: { readonly key: string; readonly order: bigint; readonly untilMs: number }[]
  capacity: number
  capacityVersion: bigint
  data: DataRecord | undefined
}

interface Watcher {
  readonly keys: readonly WatchedKey[]
  readonly onWake: (wake: 'changed' | 'lost') => void
  readonly session: string
  isOver: boolean
}

const TTL_MS = 9_000

export interface Message {
  readonly what: string
  readonly session: string
  deliver(): void
  /** The sender or the watcher learns that something was lost, or with `silently` nothing at all. */
  lose(silently: boolean): void
}

export class SimulatedStore {
  readonly kind: StoreKind
  readonly violations: string[] = []
  readonly inFlight: Message[] = []
  /** Messages wait in `inFlight` instead of being delivered at once. */
  isHeld = false
  /** It refuses what takes room: joins, marks. */
  isFull = false
  requests: string[] = []
  wakeUps = 0
  subscriptions = 0
  readonly #break: StoreBreak | undefined
  readonly #names = new Map<string, NameRecord>()
  readonly #sessions = new Set<string>()
  readonly #marks = new Map<string, MarkRecord>()
  readonly clock: Clock
  readonly #watchers = new Map<string, Set<Watcher>>()
  readonly #changes = new Map<string, { changed: bigint; deleted: bigint }>()
  readonly #tokens = new Map<string, readonly bigint[]>()
  #version = 0n
  #lastToken = 0n

  constructor(kind: StoreKind, broken?: StoreBreak, clock: Clock = createFakeClock()) {
    this.kind = kind
    this.#break = broken
    this.clock = clock
  }

  /** The claims of one session. */
  openSession(id: string): ClaimStore {
    this.#sessions.add(id)
    const send = <T>(what: string, call: Call, run: () => T) => this.#send(what, id, call, run)
    return {
      comparesOrder: this.kind === 'ranges',
      join: (request, mayWait, call) => send('join', call, () => this.#join(id, request, mayWait)),
      look: ({ name }, call) => send('look', call, () => this.#looked(name)),
      isAlive: (call) => send('is alive', call, () => this.#sessions.has(id)),
      confirm: (request, own, seen, call) => send('confirm', call, () => this.#confirm(request, own, seen)),
      leave: (claim, call) => send('leave', call, () => this.#leave(claim)),
      release: (claim, keepForMs, call) => send('release', call, () => this.#release(id, claim, keepForMs)),
      remove: (claim, _isSettled, call) => send('remove', call, () => this.#removeClaim(id, claim)),
      mark: ({ attempt }, call) => send('mark', call, () => this.#mark(attempt, { reason: 'abandoned' })),
      markOf: ({ attempt }, call) => send('mark of', call, () => this.#marks.get(attempt)),
      putData: (own, record, call) => send('put data', call, () => this.#putData(id, own, record)),
      prolong: (held, call) => {
        const since = instantOf(this.clock)
        return send('prolong', call, () => {
          const isLost = (claim: GrantedClaim) => String(tokenOf(this.#find(claim))) !== claim.grantId
          const besides = this.kind === 'derives' && { besides: this.#claimsOf(id) }
          return this.#sessions.has(id) ? { since, lost: held.filter(isLost), ...besides } : null
        })
      },
      ...(this.kind !== 'derives' && {
        claimsBesides: (known: ReadonlySet<string>, call: Call) =>
          send('claims besides', call, () => this.#claimsOf(id).filter(({ attempt }) => !known.has(attempt))),
      }),
      capacityKey: (name) => `${name}/capacity`,
      close: (call) => send('close', call, () => this.endSession(id)),
      watch: (keys, version, onWake) => this.#watch(id, keys, version, onWake),
    }
  }

  /** Another process goes on with the session. Null: it has gone. */
  findSession(id: string): ClaimStore | null {
    const isThere = this.#sessions.has(id) || this.#break === 'finds a session that has gone'
    return isThere ? this.openSession(id) : null
  }

  /** The session's queue, with the kit's decisions in between. */
  openQueue(id: string): OrderedStore {
    return new StoreQueue('simulated', this.openSession(id), async (_, join) => ({
      joined: await join(),
      isFirst: true,
    }))
  }

  get names(): NameStore {
    const send = <T>(what: string, call: Call, run: () => T) => this.#send(what, 'operator', call, run)
    return {
      read: (name, call) => send('read', call, () => this.#stored(name)),
      list: (prefix, page, call) =>
        send('list', call, () => {
          const names = [...this.#names.keys()].filter((name) => name.startsWith(prefix))
          return pageOf(
            names.map((name) => ({ name, stored: this.#stored(name) })),
            page,
            ({ name }) => name,
          )
        }),
      sessions: (page, call) =>
        send('sessions', call, () => {
          const sessions = [...this.#sessions].map((id) => ({
            id,
            holder: id,
            ttlMs: TTL_MS,
            expiresInMs: TTL_MS,
          }))
          return pageOf(sessions, page, ({ id }) => id)
        }),
      endClaim: (claim, mark, call) =>
        send('end claim', call, () => {
          const entry = this.#find(claim)
          const isSame =
            entry !== undefined &&
            (this.#shown(entry).token === claim.token || this.#break === 'ends what was granted since')
          if (entry === undefined || !isSame) return false
          this.#delete(entry)
          this.#mark(claim.attempt, mark)
          return true
        }),
      changeCapacity: (name, seen, capacity, call) =>
        send('change capacity', call, () => {
          const { capacityVersion, entries } = this.#record(name, 0)
          const isSame = entries.every(
            ({ order, token }) => order <= seen.version && (token ?? 0n) <= seen.version,
          )
          if (capacityVersion > seen.version || !isSame || entries.length === 0) return false
          this.resize(name, capacity)
          return true
        }),
      deleteData: (name, seen, call) =>
        send('delete data', call, () => {
          const record = this.#record(name, 0)
          const isUsed = record.entries.length > 0 && this.#break !== 'deletes data in use'
          if (isUsed || record.data !== seen.data) return false
          record.data = undefined
          return true
        }),
    }
  }

  entries(name: string): readonly Entry[] {
    return this.#names.get(name)?.entries ?? []
  }

  /** Holders and waiters by attempt, oldest first: `a*` holds, `b` waits. */
  show(name: string): string {
    const claims = this.entries(name).map((entry) => `${entry.attempt}${tokenOf(entry) === null ? '' : '*'}`)
    const record = this.#names.get(name)
    const closed = record ? this.#closedBy(record).map(({ key }) => `${key.slice(name.length + 1)}*`) : []
    return [...closed, ...claims].join(' ')
  }

  /** Of all grants, in their order. */
  tokensOf(attempt: string): readonly bigint[] {
    return this.#tokens.get(attempt) ?? []
  }

  get watchers(): number {
    return new Set([...this.#watchers.values()].flatMap((watchers) => [...watchers])).size
  }

  watchersOf(session: string): Watcher[] {
    const all = new Set([...this.#watchers.values()].flatMap((watchers) => [...watchers]))
    return [...all].filter((watcher) => watcher.session === session)
  }

  isOpen(session: string): boolean {
    return this.#sessions.has(session)
  }

  endSession(id: string): void {
    this.#sessions.delete(id)
    if (this.#break === 'keeps the claims of an ended session') return
    for (const { entries } of this.#names.values())
      for (const entry of entries.filter(({ session }) => session === id)) this.#delete(entry)
  }

  /** A release, or an operator who deletes the key, whether it holds or waits. */
  remove(claim: Claim): boolean {
    const record = this.#record(claim.name, 1)
    const closed = record.closedBy.find(({ key }) => key === `${claim.name}/${claim.attempt}`)
    if (closed !== undefined) {
      record.closedBy.splice(record.closedBy.indexOf(closed), 1)
      this.#version++
      this.#changed(closed.key, 'deleted')
      return true
    }
    const entry = this.#find(claim)
    if (entry !== undefined) this.#delete(entry)
    return entry !== undefined
  }

  abandon(claim: Claim): void {
    this.#mark(claim.attempt, { reason: 'abandoned' })
    this.remove(claim)
  }

  resize(name: string, capacity: number): void {
    const record = this.#record(name, capacity)
    record.capacity = capacity
    record.capacityVersion = ++this.#version
    this.#changed(`${name}/capacity`, 'changed')
  }

  /** The name is closed, as by a hold-at-least, until `remove` is called with what this returns. */
  close(name: string, untilMs = Number.POSITIVE_INFINITY): Claim {
    const record = this.#record(name, 1)
    const attempt = `closed${record.closedBy.length || ''}`
    record.closedBy.push({ key: `${name}/${attempt}`, order: ++this.#version, untilMs })
    return { name, attempt }
  }

  /** All watches of a session are lost at once. */
  disconnect(session: string): void {
    for (const watcher of this.watchersOf(session)) {
      watcher.isOver = true
      watcher.onWake('lost')
    }
  }

  async #send<T>(what: string, session: string, call: Call, run: () => T): Promise<T> {
    throwIfCancelled('simulated', call)
    this.requests.push(what)
    return new Promise<T>((resolve, reject) => {
      const untie = call.onCancel(() => reject(cancelledCall('simulated', call.signal, 'unknown')))
      const lost = () => reject(new BackendUnavailableError('simulated', `${what}: no answer`, 'unknown'))
      const reply = (settle: () => void) =>
        this.#post({
          what: `reply to ${what}`,
          session,
          deliver: () => {
            untie()
            settle()
          },
          lose: lost,
        })
      const deliver = () => {
        try {
          const answer = run()
          reply(() => resolve(answer))
        } catch (error) {
          reply(() => reject(error))
        }
      }
      this.#post({ what, session, deliver, lose: lost })
    })
  }

  #post(message: Message): void {
    if (this.isHeld) this.inFlight.push(message)
    else queueMicrotask(() => message.deliver())
  }

  #join(session: string, request: AcquireRequest, mayWait: boolean): Joined<StoredClaim> {
    const { name, attempt, weight, capacity, mode } = request
    const isAbandoned = this.#marks.has(attempt) && this.#break !== 'joins after the mark'
    const isAlive = this.#sessions.has(session)
    const isThere = this.#find(request) !== undefined && this.#break !== 'joins twice'
    const record = this.#record(name, capacity)
    const isOther = record.entries.some((entry) => (entry.mode === 'permits') !== (mode === 'permits'))
    const refused = { kind: 'refused', name: this.#stored(name) } as const
    if (!isAlive) return { kind: 'session-gone' }
    if (this.isFull) throw full()
    if (isAbandoned) return { kind: 'abandoned' }
    const found = this.#find(request)
    if (isThere && found?.isDerived) return { kind: 'granted', token: found.order }
    if (isThere || isOther) return refused
    if (record.entries.length === 0) record.capacity = capacity
    const order = this.#version + 1n
    const session_ = { id: session, holder: session, ttlMs: TTL_MS }
    const entry: Entry = {
      name,
      attempt,
      id: publicIdOf(attempt),
      mode,
      key: `${name}/${attempt}`,
      session,
      weight,
      order,
      asked: capacity,
      token: null,
      isDerived: false,
      record: claimRecord(request, session_, this.clock.wallMs()),
    }
    record.entries.push(entry)
    const isLock = mode !== 'permits'
    const grantsAtOnce = this.kind === 'ranges' && isLock && this.#fits(entry)
    if (this.kind === 'ranges' && isLock && !mayWait && !grantsAtOnce) {
      record.entries.pop()
      return refused
    }
    this.#version++
    if (grantsAtOnce) return this.#grant(entry, order)
    if (this.kind === 'derives' && this.#fits(entry)) {
      entry.isDerived = true
      return this.#granted(entry, order)
    }
    return { kind: 'created', own: this.#shown(entry), name: this.#seenBy(entry, request) }
  }

  #confirm(
    request: AcquireRequest,
    own: QueueEntry,
    seen: QueueView | null,
  ): GrantedByStore | StoredName<StoredClaim> {
    const entry = this.#find(request)
    if (entry === undefined) return this.#stored(request.name)
    if (tokenOf(entry) !== null) return this.#stored(request.name)
    if (seen === null && (this.kind !== 'ranges' || request.mode === 'permits'))
      this.violations.push(`this store cannot confirm ${entry.attempt} without a view`)
    const isSameKey = entry.order === own.order || this.#break === 'confirms any key of the attempt'
    const changedAt = this.#record(entry.name, 0).capacityVersion
    const isSame =
      seen !== null && (seen.version >= changedAt || this.#break === 'grants beside a changed capacity')
    const isFirst = seen === null && (this.#break === 'grants without the check' || this.#fits(entry))
    if (!isSameKey || (!isSame && !isFirst)) return this.#seenBy(entry, request)
    return this.#grant(entry, ++this.#version)
  }

  #grant(entry: Entry, version: bigint): GrantedByStore {
    const token = this.#break === 'token drawn at join' ? entry.order : version
    entry.token = token
    return this.#granted(entry, token)
  }

  #granted(entry: Entry, token: bigint): GrantedByStore {
    const record = this.#record(entry.name, 0)
    if (token <= this.#lastToken)
      this.violations.push(`G2 ${entry.attempt} got token ${token} after ${this.#lastToken}`)
    if (!this.#fits(entry)) this.violations.push(`G8 ${entry.attempt} overtook: ${this.show(entry.name)}`)
    this.#lastToken = token
    this.#tokens.set(entry.attempt, [...this.tokensOf(entry.attempt), token])
    const held = record.entries.filter((other) => tokenOf(other) !== null)
    const weight = held.reduce((sum, other) => sum + other.weight, 0)
    const capacity = this.#capacityOf(entry.name)
    if (weight > capacity) this.violations.push(`G1 ${weight} of ${capacity} held: ${this.show(entry.name)}`)
    this.#changed(entry.key, 'changed')
    return { kind: 'granted', token, previousData: record.data?.data }
  }

  #leave(claim: Claim): void {
    const entry = this.#find(claim)
    const waits = entry !== undefined && tokenOf(entry) === null
    if (waits || this.#break === 'leaves what is granted') this.remove(claim)
  }

  #release(session: string, claim: GrantedClaim, keepForMs: number): boolean {
    const entry = this.#find(claim)
    const isAny = this.#break === 'releases whatever the attempt has'
    if (entry?.session !== session || (String(tokenOf(entry)) !== claim.grantId && !isAny)) return false
    if (keepForMs > 0) {
      const staysClosed = this.#break === 'a name stays closed'
      const closed = this.close(claim.name, staysClosed ? undefined : this.clock.monotonicMs() + keepForMs)
      // Where keys expire, that is told.
      if (this.kind === 'ranges' && !staysClosed) this.clock.setTimer(keepForMs, () => this.remove(closed))
    }
    this.#delete(entry)
    return true
  }

  #removeClaim(session: string, claim: Claim): void {
    if (this.isFull && this.#break === 'a full engine refuses removes') throw full()
    const [first] = this.entries(claim.name)
    if (this.#break === 'removes any claim of the name' && first !== undefined) this.#delete(first)
    else if (this.#find(claim)?.session === session) this.remove(claim)
  }

  #putData(session: string, own: StoredClaim, data: DataRecord): boolean {
    const entry = this.#find(own)
    const isHeld =
      entry?.session === session && this.#shown(entry).token === own.token && tokenOf(entry) !== null
    if (!isHeld && this.#break !== 'writes data of an ended grant') return false
    this.#record(own.name, 0).data = data
    return true
  }

  /** A full engine does not take it, and the session goes on without. */
  #mark(attempt: string, mark: MarkRecord): void {
    if (!this.isFull) this.#marks.set(attempt, mark)
    else if (this.#break === 'a full engine rejects marks') throw full()
  }

  #claimsOf(id: string): Claim[] {
    const own = [...this.#names.values()]
      .flatMap(({ entries }) => entries)
      .filter(({ session }) => session === id)
    const told =
      this.#break === 'tells of holders only' ? own.filter((entry) => tokenOf(entry) !== null) : own
    return this.#break === 'a late join is not told'
      ? []
      : told.map(({ name, attempt }) => ({ name, attempt }))
  }

  /** By the oldest claim. One that disagreed with an older one may be the oldest by now, until it has left. */
  #capacityOf(name: string): number {
    return this.#stored(name).capacity ?? this.#record(name, 0).capacity
  }

  #fits(entry: Entry): boolean {
    const record = this.#record(entry.name, 0)
    if (this.#closedBy(record).length > 0) return false
    const before = record.entries.filter(({ order }) => order <= entry.order)
    return before.reduce((sum, { weight }) => sum + weight, 0) <= this.#capacityOf(entry.name)
  }

  #stored(name: string, entries = this.entries(name)): StoredName<StoredClaim> {
    const record = this.#record(name, 0)
    const { capacity, capacityVersion, data } = record
    const closedBy = this.#closedBy(record)
    const closedForMs = Math.max(...closedBy.map(({ untilMs }) => untilMs)) - this.clock.monotonicMs()
    const isTimed = this.kind !== 'ranges' && Number.isFinite(closedForMs)
    return new StoredName({
      version: this.#version,
      claims: entries.map((entry) => this.#shown(entry)),
      derivesGrants: this.kind === 'derives',
      closedBy,
      ...(isTimed && this.#break !== 'tells no time of a closed name' && { closedForMs }),
      capacities: capacityVersion === 0n ? [] : [{ order: capacityVersion, capacity }],
      ...(data !== undefined && { data }),
    })
  }

  /** What keeps the name closed still. A key of which no engine sees to the end counts until its time is over. */
  #closedBy({ closedBy }: NameRecord) {
    return closedBy.filter(({ untilMs }) => untilMs > this.clock.monotonicMs() || this.kind === 'ranges')
  }

  #looked(name: string): StoredName<StoredClaim> {
    if (this.#break !== 'looks derive grants') return this.#stored(name)
    const { claims, version } = this.#stored(name)
    const [first, ...others] = claims
    return new StoredName({
      version,
      claims: first ? [{ ...first, granted: true, token: first.token ?? first.order }, ...others] : [],
    })
  }

  /** A derived grant is not written, so a reader sees the token of the creation, whether the claim holds or waits. */
  #shown({ session: _, asked, isDerived: __, ...entry }: Entry): StoredClaim {
    const token = entry.token ?? (this.kind === 'derives' ? entry.order : null)
    return { ...entry, token, capacity: asked, granted: entry.token !== null }
  }

  /** What the answer to a waiter shows: all that is older or, where ranges are compared, the youngest that conflicts. */
  #seenBy(entry: Entry, { mode, maxWaiters }: AcquireRequest): StoredName<StoredClaim> {
    const older = this.entries(entry.name).filter(({ order }) => order < entry.order)
    if (this.kind !== 'ranges' || mode === 'permits' || maxWaiters !== undefined)
      return this.#stored(entry.name, [...older, entry])
    const { capacity } = this.#record(entry.name, 0)
    const blocker = older.findLast(({ weight }) => weight + entry.weight > capacity)
    return this.#stored(entry.name, blocker === undefined ? [entry] : [blocker, entry])
  }

  #watch(session: string, keys: readonly WatchedKey[], version: bigint, onWake: Watcher['onWake']) {
    this.subscriptions++
    const watcher: Watcher = { keys, onWake, session, isOver: false }
    for (const { key } of keys) this.#watchersOf(key).add(watcher)
    const isLate = keys.some(({ key, until }) => (this.#changes.get(key)?.[until] ?? 0n) > version)
    if (isLate && this.#break !== 'watches from now on') this.#tell(watcher)
    return () => {
      watcher.isOver = true
      for (const { key } of keys) {
        this.#watchersOf(key).delete(watcher)
        if (this.#watchersOf(key).size === 0) this.#watchers.delete(key)
      }
    }
  }

  #tell(watcher: Watcher): void {
    this.#post({
      what: 'event',
      session: watcher.session,
      deliver: () => {
        if (watcher.isOver) return
        this.wakeUps++
        watcher.onWake('changed')
      },
      lose: (silently) => {
        if (watcher.isOver) return
        // A watch that was lost tells nothing more.
        watcher.isOver = true
        if (!silently) watcher.onWake('lost')
      },
    })
  }

  #delete(entry: Entry): void {
    const { entries } = this.#record(entry.name, 0)
    entries.splice(entries.indexOf(entry), 1)
    this.#version++
    this.#changed(entry.key, 'deleted')
  }

  #changed(key: string, how: 'changed' | 'deleted'): void {
    const before = this.#changes.get(key) ?? { changed: 0n, deleted: 0n }
    const deleted = how === 'deleted' ? this.#version : before.deleted
    this.#changes.set(key, { changed: this.#version, deleted })
    for (const watcher of this.#watchers.get(key) ?? [])
      if (
        watcher.keys.some(
          (watched) => watched.key === key && (watched.until === 'changed' || how === 'deleted'),
        )
      )
        this.#tell(watcher)
  }

  #find({ name, attempt }: Claim): Entry | undefined {
    return this.entries(name).find((entry) => entry.attempt === attempt)
  }

  #record(name: string, capacity: number): NameRecord {
    const found = this.#names.get(name)
    if (found !== undefined) return found
    const made = { entries: [], closedBy: [], capacity, capacityVersion: 0n, data: undefined }
    this.#names.set(name, made)
    return made
  }

  #watchersOf(key: string): Set<Watcher> {
    const found = this.#watchers.get(key)
    if (found !== undefined) return found
    const made = new Set<Watcher>()
    this.#watchers.set(key, made)
    return made
  }
}

function full(): BackendUnavailableError {
  return new BackendUnavailableError('simulated', 'it is full', 'not-applied')
}

/** Null while it waits. */
function tokenOf(entry: Entry | undefined): bigint | null {
  return entry?.isDerived ? entry.order : (entry?.token ?? null)
}
