/**
 * An engine with ordered keys and watches, in memory, for tests of the predecessor queue. A test may take its network in hand:
 * then requests, replies and events wait until the test delivers or loses them. Whatever is granted is judged (`violations`).
 */
import { BackendUnavailableError, CapacityMismatchError } from '../src/base/errors.ts'
import { cancelledCall, throwIfCancelled } from '../src/kit/backend-kit.ts'
import type {
  JoinResult,
  OrderedStore,
  QueueEntry,
  QueueStanding,
  QueueView,
  WatchedKey,
} from '../src/kit/ordered-store.ts'
import type { AcquireRequest, Call, Claim } from '../src/spi.ts'

/**
 * `ranges`: a write can ask whether anything older is left, and views of locks have the youngest blocker only (etcd).
 * `lists`: a write can only ask about the own key, and every view has all that is older (ZooKeeper, Consul).
 */
export type StoreKind = 'ranges' | 'lists'

/** Planted breaks, which the tests must notice. */
export type StoreBreak =
  | 'grants without the check'
  | 'confirms any key of the attempt'
  | 'token drawn at join'
  | 'watches from now on'

export interface Entry extends Claim {
  readonly key: string
  readonly session: string
  readonly weight: number
  readonly order: bigint
  token: bigint | null
}

interface NameRecord {
  readonly entries: Entry[]
  capacity: number
  capacityVersion: bigint
}

interface Watcher {
  readonly keys: readonly WatchedKey[]
  readonly onWake: (wake: 'changed' | 'lost') => void
  readonly session: string
  isOver: boolean
}

type Granted = Extract<QueueStanding, { kind: 'granted' }>

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
  requests: string[] = []
  wakeUps = 0
  subscriptions = 0
  readonly #break: StoreBreak | undefined
  readonly #names = new Map<string, NameRecord>()
  readonly #sessions = new Set<string>()
  readonly #abandoned = new Set<string>()
  readonly #watchers = new Map<string, Set<Watcher>>()
  readonly #changes = new Map<string, { changed: bigint; deleted: bigint }>()
  readonly #tokens = new Map<string, readonly bigint[]>()
  #version = 0n
  #lastToken = 0n

  constructor(kind: StoreKind, broken?: StoreBreak) {
    this.kind = kind
    this.#break = broken
  }

  openSession(id: string): OrderedStore {
    this.#sessions.add(id)
    const send = <T>(what: string, call: Call, run: () => T) => this.#send(what, id, call, run)
    return {
      comparesOrder: this.kind === 'ranges',
      join: (request, mayWait, call) => send('join', call, () => this.#join(id, request, mayWait)),
      look: (request, call) => send('look', call, () => this.#standing(id, request)),
      confirm: (request, own, seen, call) =>
        send('confirm', call, () => this.#confirm(id, request, own, seen)),
      leave: (claim, call) => send('leave', call, () => this.#leave(claim)),
      watch: (keys, version, onWake) => this.#watch(id, keys, version, onWake),
    }
  }

  entries(name: string): readonly Entry[] {
    return this.#names.get(name)?.entries ?? []
  }

  /** Holders and waiters by attempt, oldest first: `a*` holds, `b` waits. */
  show(name: string): string {
    return this.entries(name)
      .map(({ attempt, token }) => `${attempt}${token === null ? '' : '*'}`)
      .join(' ')
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
    for (const { entries } of this.#names.values())
      for (const entry of entries.filter(({ session }) => session === id)) this.#delete(entry)
  }

  /** A release, or an operator who deletes the key, whether it holds or waits. */
  remove(claim: Claim): boolean {
    const entry = this.#find(claim)
    if (entry !== undefined) this.#delete(entry)
    return entry !== undefined
  }

  abandon(claim: Claim): void {
    this.#abandoned.add(claim.attempt)
    this.remove(claim)
  }

  resize(name: string, capacity: number): void {
    const record = this.#record(name, capacity)
    record.capacity = capacity
    record.capacityVersion = ++this.#version
    this.#changed(`${name}/capacity`, 'changed')
  }

  /** The name is closed, as by a hold-at-least, until `remove` is called with what this returns. */
  close(name: string): Claim {
    const record = this.#record(name, 1)
    const claim = { name, attempt: 'closed' }
    const key = `${name}/closed`
    record.entries.unshift({ ...claim, key, session: '', weight: record.capacity, order: 0n, token: 0n })
    return claim
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

  #join(session: string, request: AcquireRequest, mayWait: boolean): JoinResult {
    const { name, attempt, weight, capacity } = request
    if (this.#abandoned.has(attempt))
      throw new BackendUnavailableError('simulated', 'the attempt was abandoned', 'not-applied')
    if (!this.#sessions.has(session)) return { kind: 'session-gone' }
    const found = this.#standing(session, request)
    if (found.kind === 'waiting') return { ...found, isNew: false }
    if (found.kind === 'granted') return found
    const record = this.#record(name, capacity)
    if (record.entries.length === 0) record.capacity = capacity
    if (record.capacity !== capacity) throw new CapacityMismatchError(name, capacity, record.capacity)
    const order = this.#version + 1n
    const entry = { name, attempt, key: `${name}/${attempt}`, session, weight, order, token: null }
    record.entries.push(entry)
    const isLock = request.mode !== 'permits'
    const grantsAtOnce = this.kind === 'ranges' && isLock && this.#fits(entry)
    if (this.kind === 'ranges' && isLock && !mayWait && !grantsAtOnce) {
      record.entries.pop()
      return { kind: 'busy' }
    }
    this.#version++
    if (!grantsAtOnce) return { kind: 'waiting', queue: this.#view(entry, request), isNew: true }
    return this.#grant(entry, order)
  }

  #standing(session: string, request: AcquireRequest): QueueStanding {
    const entry = this.#find(request)
    if (entry === undefined)
      return this.#sessions.has(session) ? { kind: 'deleted' } : { kind: 'session-gone' }
    if (entry.token !== null) return { kind: 'granted', token: entry.token }
    return { kind: 'waiting', queue: this.#view(entry, request) }
  }

  #confirm(session: string, request: AcquireRequest, own: QueueEntry, seen: QueueView | null): QueueStanding {
    const standing = this.#standing(session, request)
    const entry = this.#find(request)
    if (standing.kind !== 'waiting' || entry === undefined) return standing
    if (seen === null && (this.kind === 'lists' || request.mode === 'permits'))
      this.violations.push(`this store cannot confirm ${entry.attempt} without a view`)
    const isSameKey = entry.order === own.order || this.#break === 'confirms any key of the attempt'
    const isSame = seen !== null && seen.version >= this.#record(entry.name, 0).capacityVersion
    const isFirst = seen === null && (this.#break === 'grants without the check' || this.#fits(entry))
    if (!isSameKey || (!isSame && !isFirst)) return standing
    return this.#grant(entry, ++this.#version)
  }

  #grant(entry: Entry, version: bigint): Granted {
    const record = this.#record(entry.name, 0)
    const token = this.#break === 'token drawn at join' ? entry.order : version
    if (token <= this.#lastToken)
      this.violations.push(`G2 ${entry.attempt} got token ${token} after ${this.#lastToken}`)
    if (!this.#fits(entry)) this.violations.push(`G8 ${entry.attempt} overtook: ${this.show(entry.name)}`)
    entry.token = this.#lastToken = token
    this.#tokens.set(entry.attempt, [...this.tokensOf(entry.attempt), token])
    const held = record.entries.filter((other) => other.token !== null)
    const weight = held.reduce((sum, other) => sum + other.weight, 0)
    if (weight > record.capacity)
      this.violations.push(`G1 ${weight} of ${record.capacity} held: ${this.show(entry.name)}`)
    this.#changed(entry.key, 'changed')
    return { kind: 'granted', token }
  }

  #leave(claim: Claim): void {
    const entry = this.#find(claim)
    if (entry?.token === null) this.remove(claim)
  }

  #fits(entry: Entry): boolean {
    const { entries, capacity } = this.#record(entry.name, 0)
    const before = entries.filter(({ order }) => order <= entry.order)
    return before.reduce((sum, { weight }) => sum + weight, 0) <= capacity
  }

  #view(entry: Entry, request: AcquireRequest): QueueView {
    const view = this.#wholeView(entry, this.#record(entry.name, 0))
    if (this.kind === 'lists' || request.mode === 'permits' || request.maxWaiters !== undefined) return view
    const blocker = view.older.findLast(({ weight }) => weight + entry.weight > view.capacity)
    return { ...view, older: blocker === undefined ? [] : [blocker] }
  }

  #wholeView(entry: Entry, { entries, capacity }: NameRecord): QueueView {
    const shown = ({ key, order, weight, token }: Entry) => ({ key, order, weight, granted: token !== null })
    const older = entries.filter(({ order }) => order < entry.order).map(shown)
    const capacityKey = `${entry.name}/capacity`
    return { own: shown(entry), older, capacity, capacityKey, version: this.#version }
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
    const made = { entries: [], capacity, capacityVersion: 0n }
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
