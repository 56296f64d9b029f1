/**
 * Events, from one persistent watch on the names of a namespace. The watchers of a process share it, and a model of the claims.
 *
 *   claim created                                acquired, if it was the only child; else waiting, if something is in its way
 *   claim written                                acquired: the grant of a claim that has waited
 *   claim deleted, and then the container written        released: nothing else writes it right after
 *   claim deleted, and no more                   the attempt's node has the reason; it went as well: the session has ended
 *
 * An event has no data, so the node of a claim is read. If it has gone by then, its release tells of it. If that is not there either, or the
 * connection was lost, watchers are told a gap and the holders. Nothing is kept, so every cursor leads to a gap as well. Events and replies
 * of one connection come in the order of ZooKeeper's writes; the steps of one name follow each other.
 */
import { ignore } from '../../../base/ignore.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import type { DataRecord, MarkRecord } from '../../../kit/claim-records.ts'
import { LiveEvents, type LiveSource } from '../../../kit/live-events.ts'
import { isEligible } from '../../../kit/ordered-store.ts'
import { StoredName, toldOf } from '../../../kit/stored-name.ts'
import { type ToldEvent, toldEvent } from '../../../kit/watching.ts'
import type { Call, WatchEvent } from '../../../spi.ts'
import type { NodeEvent, Reply, Session } from '../client/index.ts'
import { type Connection, refused, unavailable } from './connection.ts'
import type { ClaimPath } from './keys.ts'
import { type EndedRecord, foundClaim, parse, seenClaim, type ZooKeeperClaim } from './records.ts'

interface WatchedClaim {
  readonly path: ClaimPath
  claim: ZooKeeperClaim | undefined
  state: 'seen' | 'waiting' | 'held'
  /** The container was written with its deletion. */
  wasReleased: boolean
  /** It was written, and had gone before it was read. */
  isUnsure: boolean
}

interface WatchedName {
  /** Null for a child that is no claim. */
  readonly children: Map<string, WatchedClaim | null>
  /** The claim that was deleted by the last event. */
  ended: WatchedClaim | undefined
  /** The end of the steps of its events. */
  steps: Promise<void>
}

export class NameWatch implements LiveSource {
  readonly #connection: Connection
  readonly #events: LiveEvents
  #names = new Map<string, WatchedName>()
  #close: () => void = () => {}

  constructor(connection: Connection) {
    this.#connection = connection
    this.#events = new LiveEvents(connection.lifetime, connection.clock, this)
  }

  watch(prefix: string, cursor: string | undefined, call: Call): AsyncIterable<WatchEvent> {
    return this.#events.watch(prefix, cursor, call)
  }

  /** Watches first, and reads all names then. Events that come meanwhile follow. */
  async open(call: Call): Promise<void> {
    const { keys } = this.#connection
    const { session } = await this.#connection.reading(call)
    const early: NodeEvent[] = []
    let onEvent = (event: NodeEvent): void => void early.push(event)
    let isLost = false
    const onLost = () => {
      isLost = true
      if (this.#close === close) this.#events.lost()
    }
    const watched = await session.watchTree(keys.names, { onEvent: (event) => onEvent(event), onLost }, call)
    const close = () => {
      onEvent = ignore
      watched?.()
    }
    try {
      const listed =
        watched === null ? null : await session.ask({ op: 'getChildren', path: keys.names }, call)
      if (!listed?.ok) throw refused(listed?.code ?? 'session-gone')
      const names = listed.children.map((child) => keys.parse(`${keys.names}/${child}`)?.name ?? '')
      const read = await Promise.all(names.map((name) => this.#read(session, name, call)))
      if (isLost) throw unavailable('the connection was lost', 'not-applied')
      this.#names = new Map(names.map((name, index) => [name, read[index] as WatchedName]))
      this.#close = close
      onEvent = (event) => this.#on(session, event)
      for (const event of early) onEvent(event)
    } catch (error) {
      // Else it would go on, and keep every event.
      close()
      throw error
    }
  }

  close(): void {
    this.#close()
    this.#names.clear()
  }

  holders(): ToldEvent[] {
    const claims = [...this.#names.values()].flatMap(({ children }) => [...children.values()])
    return claims.flatMap((each) =>
      each?.state === 'held' && each.claim !== undefined ? [toldOf(each.claim, 'acquired')] : [],
    )
  }

  async #read(session: Session, name: string, call: Call): Promise<WatchedName> {
    const { keys } = this.#connection
    const list = await session.ask({ op: 'getChildren', path: keys.name(name) }, call)
    const children = list.ok ? list.children : []
    const paths = keys.claimsIn(name, children)
    const reads = paths.map((path) => session.ask({ op: 'getData', path: path.key }, call))
    const claims = (await Promise.all(reads)).flatMap((reply, index) => {
      const path = paths[index]
      return reply.ok && path !== undefined ? [foundClaim(path, reply.data, reply.stat)] : []
    })
    const closedBy = keys.keptIn(name, children)
    const { holders } = new StoredName({ version: list.zxid, claims, closedBy, derivesGrants: true })
    const watched: WatchedName = { children: new Map(), ended: undefined, steps: Promise.resolve() }
    for (const child of children) watched.children.set(child, null)
    for (const claim of claims) {
      const state = holders.includes(claim) ? 'held' : 'waiting'
      const child = claim.key.slice(keys.name(name).length + 1)
      watched.children.set(child, { path: claim, claim, state, wasReleased: false, isUnsure: false })
    }
    return watched
  }

  #on(session: Session, { kind, path }: NodeEvent): void {
    const { keys } = this.#connection
    const { name, child } = keys.parse(path) ?? {}
    if (name === undefined || child === undefined) return
    const known = this.#names.get(name)
    const watched: WatchedName = known ?? { children: new Map(), ended: undefined, steps: Promise.resolve() }
    if (known === undefined) this.#names.set(name, watched)
    const { children, ended } = watched
    watched.ended = undefined
    const step = (work: () => unknown) => {
      // A failed read is a lost connection, and the watch is lost with it.
      const done = watched.steps.then(work).then(ignore, ignore)
      watched.steps = done
      done.then(() => {
        const isLast = watched.steps === done && children.size === 0
        if (isLast && this.#names.get(name) === watched) this.#names.delete(name)
      })
    }
    /** It is read at once, and judged in its turn. */
    const read = (judge: (reply: Reply<'getData'>) => void) => {
      const reading = session.ask({ op: 'getData', path }, neverCancelled)
      reading.catch(ignore)
      step(async () => judge(await reading))
    }
    const claim = children.get(child)
    if (child === '') {
      if (kind === 'changed' && ended !== undefined) ended.wasReleased = true
      step(ignore)
    } else if (kind === 'deleted') {
      children.delete(child)
      watched.ended = claim ?? undefined
      if (claim) step(() => this.#ended(session, claim))
    } else if (child === 'data') {
      children.set(child, null)
      read((reply) => this.#tellData(name, reply))
    } else if (claim) read((reply) => this.#written(claim, reply))
    else if (kind === 'created' && claim === undefined) {
      const created = watchedClaim(keys.parseClaim(path))
      const isAlone = children.size === 0
      const isInFront = created !== null && isFirst(created.path, watched)
      children.set(child, created)
      if (created !== null) read((reply) => this.#created(created, reply, isAlone, isInFront))
    }
  }

  #created(created: WatchedClaim, reply: Reply<'getData'>, isAlone: boolean, isInFront: boolean): void {
    const claim = reply.ok ? foundClaim(created.path, reply.data, reply.stat) : undefined
    created.claim = claim
    // If it has gone already, its release will tell of it.
    if (claim === undefined) return
    if (!isInFront) this.#wait(created, claim)
    if (isAlone || claim.granted) this.#acquire(created, claim)
  }

  #written(written: WatchedClaim, reply: Reply<'getData'>): void {
    const claim = reply.ok ? foundClaim(written.path, reply.data, reply.stat) : null
    if (claim?.granted && written.claim?.token !== claim.token) this.#acquire(written, claim)
    else if (claim === null) written.isUnsure = true
  }

  /** Whatever the same transaction has written comes before the reply to a read. */
  async #ended(session: Session, ended: WatchedClaim): Promise<void> {
    const { path, claim, state } = ended
    const { keys } = this.#connection
    const read = (node: string) => session.ask({ op: 'getData', path: node }, neverCancelled)
    if (claim !== undefined && state === 'held') {
      const reply = ended.wasReleased ? null : await read(keys.attempt(path.attempt))
      return this.#events.tell(
        toldOf(claim, ended.wasReleased || reply === null ? 'released' : reasonOf(reply)),
      )
    }
    const reply = await read(keys.name(path.name))
    const last = reply.ok && ended.wasReleased ? parse<EndedRecord>(reply.data || '{}') : undefined
    const own = last?.id === path.id ? last : undefined
    if (own?.token != null) {
      const told = { ...own, name: path.name, token: BigInt(own.token) }
      this.#events.tell(toldEvent({ ...told, kind: 'acquired' }))
      this.#events.tell(toldEvent({ ...told, kind: 'released' }))
    } else if (claim === undefined || (ended.isUnsure && own === undefined)) this.#events.missed()
    else if (state === 'waiting') this.#events.tell(toldOf({ ...claim, token: null }, 'gave-up'))
  }

  #wait(waiting: WatchedClaim, claim: ZooKeeperClaim): void {
    waiting.state = 'waiting'
    this.#events.tell(toldOf({ ...claim, token: null }, 'waiting'))
  }

  #acquire(acquired: WatchedClaim, claim: ZooKeeperClaim): void {
    acquired.state = 'held'
    acquired.claim = claim
    this.#events.tell(toldOf(claim, 'acquired'))
  }

  #tellData(name: string, reply: Reply<'getData'>): void {
    if (!reply.ok) return
    const { data: _, token, ...by } = parse<DataRecord>(reply.data)
    this.#events.tell(toldEvent({ kind: 'data', name, ...by, token: BigInt(token) }))
  }
}

function watchedClaim(path: ClaimPath | null): WatchedClaim | null {
  return path && { path, claim: undefined, state: 'seen', wasReleased: false, isUnsure: false }
}

/** Of a holder that was not released, from the attempt's node. */
function reasonOf(reply: Reply<'getData'>): 'expired' | 'ended' | 'force-released' | 'released' {
  if (!reply.ok) return 'expired'
  if (reply.data === '') return 'ended'
  return parse<MarkRecord>(reply.data).reason === 'force-released' ? 'force-released' : 'released'
}

/** Nothing that is older is in its way, and the name is not closed. */
function isFirst(path: ClaimPath, { children }: WatchedName): boolean {
  const claims = [...children.values()].flatMap((each) => (each === null ? [] : [seenClaim(each.path)]))
  const isClosed = [...children.keys()].some((child) => child.startsWith('kept.'))
  const older = claims.filter(({ order }) => order < path.order)
  return !isClosed && isEligible({ own: seenClaim(path), older, capacity: path.capacity, version: 0n })
}
