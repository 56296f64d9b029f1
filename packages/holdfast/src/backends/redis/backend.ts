/** The SPI over the user's Redis client. */

import { callWith } from '../../base/aborting.ts'
import { type Clock, instantOf } from '../../base/clock.ts'
import { ClosedError, UnsupportedError } from '../../base/errors.ts'
import { publicIdOf, type Random } from '../../base/ids.ts'
import { SingleFlight } from '../../base/single-flight.ts'
import type { Subscription } from '../../clients/redis/index.ts'
import { prolongedSince } from '../../kit/backend-kit.ts'
import type {
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  CapacityChange,
  Fencing,
  Finding,
  InspectCall,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  SessionHandle,
  SessionRequest,
  SessionState,
  WatchEvent,
} from '../../spi.ts'
import { ClusterEvents } from './cluster-events.ts'
import type { Confirming } from './confirming.ts'
import type { Engine } from './engine.ts'
import { EventLog } from './event-log.ts'
import { readName } from './looking.ts'
import { allPages, scanPage } from './paging.ts'
import { forceReleaseScript, forgetScript, inspectScript, resizeScript } from './scripts/operators.ts'
import { findSessionScript, openSessionScript } from './scripts/sessions.ts'
import { withoutRights } from './server-checks.ts'
import { RedisSession, type SessionTools } from './session.ts'
import { WaitingRoom } from './waiting-room.ts'
import { watch } from './watch.ts'

export interface RedisBackendOptions<F extends Fencing> {
  readonly engine: Engine
  readonly info: BackendInfo<F>
  readonly pollMs: number
  readonly confirming: Confirming | null
  /** Refuses a server that cannot be used; asked before the first session. */
  readonly checkServer: (call: Call) => Promise<void>
  readonly diagnose: (call: Call) => Promise<readonly Finding[]>
  /** Closes the client, if it is ours. */
  readonly closeClient: () => Promise<void>
}

/** How many items of a page are read at a time. */
const LIST_STEP = 100
/** A force-released holder must learn it at its next keep-alive, whatever its TTL is. */
const FORCE_MARK_MS = 86_400_000

export class RedisBackend<F extends Fencing> implements Backend<F> {
  readonly info: BackendInfo<F>
  readonly clock: Clock
  readonly random: Random
  readonly #engine: Engine
  readonly #options: RedisBackendOptions<F>
  readonly #room: WaitingRoom
  readonly #tools: SessionTools
  readonly #channel: string
  /** For looks that no caller waits for: they end with the backend. */
  readonly #ending = new AbortController()
  readonly #events: EventLog | ClusterEvents
  readonly #checked: SingleFlight<void>
  /** One subscription for the process, from the first session on: the first who waits shall not wait for it. */
  readonly #subscribed: SingleFlight<Subscription>
  #isListening = false
  #isClosed = false

  constructor(options: RedisBackendOptions<F>) {
    const { engine, info, pollMs, confirming } = options
    this.info = info
    this.clock = engine.clock
    this.random = engine.random
    this.#engine = engine
    this.#options = options
    this.#channel = engine.keys.channel(engine.random.id())
    this.#room = new WaitingRoom({
      clock: engine.clock,
      random: engine.random,
      pollMs,
      look: (requests) => engine.sendAll(requests, callWith(this.#ending.signal)),
    })
    this.#subscribed = new SingleFlight('redis', (signal) =>
      engine.connection.subscribe(
        this.#channel,
        (message) => this.#room.receive(message),
        () => this.#room.lookForAll(),
        signal,
      ),
    )
    this.#events = engine.connection.isCluster
      ? new ClusterEvents({ engine, pages: this.#pages, inspect: (name, call) => this.inspect(name, call) })
      : new EventLog(engine, (call) => allPages((page) => this.#scanNames('', page, call)))
    this.#checked = new SingleFlight('redis', async (signal) => {
      await options.checkServer(callWith(signal))
      await this.#listen(callWith(signal))
    })
    this.#tools = {
      engine,
      room: this.#room,
      confirming,
      channel: this.#channel,
      isListening: () => this.#isListening,
      listen: (call) => this.#listen(call),
    }
  }

  whyUnanswered(): string | undefined {
    return this.#engine.connection.heldUpBy
  }

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<F>> {
    this.#begin()
    const since = instantOf(this.clock)
    await this.#check(call)
    const { id, ttlMs, holder } = request
    const key = this.#engine.keys.session(id)
    const granted = await this.#engine.connection
      .run(openSessionScript, [key], [String(ttlMs), holder, this.#channel], call.signal)
      .catch((error: unknown) => {
        throw withoutRights('running scripts that write and publish', error)
      })
    return new RedisSession<F>(this.#tools, { id, ttlMs: Number(granted), holder, since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<BackendSession<F> | null> {
    this.#begin()
    const id = String(handle.id)
    const now = instantOf(this.clock)
    const found = await this.#find(id, call)
    if (found === null) return null
    const { ttlMs, holder } = found
    return new RedisSession<F>(this.#tools, { id, ttlMs, holder, since: prolongedSince(now, found) })
  }

  async inspect(name: string, call: InspectCall): Promise<NameState | null> {
    this.#begin()
    const key = this.#engine.keys.lock(name)
    const wanted = call.holdersOnly === true ? ['holders'] : []
    return readName(name, await this.#engine.run(inspectScript, key, wanted, call))
  }

  async list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>> {
    const { items, next } = await this.#scanNames(prefix, page, call)
    return { items: await inSteps(items, (name) => this.inspect(name, call)), next }
  }

  readonly #pages = (prefix: string, call: Call) => allPages((page) => this.list(prefix, page, call))

  async #scanNames(prefix: string, page: PageRequest, call: Call): Promise<Page<string>> {
    this.#beginWithNames()
    const { keys, connection } = this.#engine
    const itemOf = (key: string) => {
      const name = keys.nameOf(key.slice(connection.keyPrefix.length))
      return name?.startsWith(prefix) ? name : null
    }
    const pattern = keys.pattern(connection.keyPrefix, prefix)
    return scanPage(connection, page, { pattern, itemOf }, call)
  }

  async sessions(page: PageRequest, call: Call): Promise<Page<SessionState>> {
    this.#begin()
    const { keys, connection } = this.#engine
    const itemOf = (key: string) => keys.sessionOf(key.slice(connection.keyPrefix.length))
    const pattern = keys.sessionPattern(connection.keyPrefix)
    const { items, next } = await scanPage(connection, page, { pattern, itemOf, shownOf: publicIdOf }, call)
    return { items: await inSteps(items, (id) => this.#session(id, call)), next }
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    this.#begin()
    return this.#options.diagnose(call)
  }

  async check(
    holder: { readonly name: string; readonly id: string; readonly token: bigint },
    call: Call,
  ): Promise<boolean> {
    const found = await this.inspect(holder.name, call)
    return found?.holders.some(({ id, token }) => id === holder.id && token === holder.token) ?? false
  }

  async forceRelease(
    name: string,
    ids: readonly string[],
    reason: string,
    call: OperatorCall,
  ): Promise<number> {
    this.#begin()
    const key = this.#engine.keys.lock(name)
    const args = [String(FORCE_MARK_MS), reason, ...ids]
    return Number(await this.#engine.operate(forceReleaseScript, key, args, call))
  }

  async resize(
    name: string,
    { from, to }: CapacityChange,
    call: OperatorCall,
  ): Promise<'resized' | 'in-use' | 'changed'> {
    this.#begin()
    const key = this.#engine.keys.lock(name)
    const answer = await this.#engine.operate(resizeScript, key, [String(from), String(to)], call)
    return answer as 'resized' | 'in-use' | 'changed'
  }

  async forget(name: string, data: string, call: OperatorCall): Promise<'forgotten' | 'in-use' | 'changed'> {
    this.#begin()
    const answer = await this.#engine.operate(forgetScript, this.#engine.keys.lock(name), [data], call)
    return answer as 'forgotten' | 'in-use' | 'changed'
  }

  watch(prefix: string, { cursor }: { readonly cursor?: string }, call: Call): AsyncIterable<WatchEvent> {
    const begin = () => this.#beginWithNames()
    return watch({ clock: this.clock, source: this.#events, pages: this.#pages, begin }, prefix, cursor, call)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    const error = new ClosedError('The redis backend')
    this.#ending.abort(error)
    this.#room.close(error)
    this.#events.close()
    this.#options.confirming?.close()
    this.#engine.close()
    await this.#options.closeClient()
  }

  #begin(): void {
    if (this.#isClosed) throw new ClosedError('The redis backend')
  }

  #beginWithNames(): void {
    this.#begin()
    if (!this.#engine.keys.areOurs)
      throw new UnsupportedError(
        'redis: names cannot be listed or watched where the option `key` chooses the keys, because a key does not tell its name.',
      )
  }

  /** Once for all sessions. */
  async #check(call: Call): Promise<void> {
    try {
      await this.#checked.join(call)
    } catch (error) {
      throw withoutRights('publishing or subscribing', error)
    }
  }

  async #listen(call: Call): Promise<void> {
    await this.#subscribed.join(call)
    this.#isListening = true
  }

  async #session(id: string, call: Call): Promise<SessionState | null> {
    const found = await this.#find(id, call)
    if (found === null) return null
    const { ttlMs, holder, leftMs } = found
    return { id: publicIdOf(id), holder, ttlMs, expiresInMs: leftMs < 0 ? Number.POSITIVE_INFINITY : leftMs }
  }

  /** Null if there is no such session. */
  async #find(id: string, call: Call): Promise<{ leftMs: number; ttlMs: number; holder: string } | null> {
    const { connection, keys } = this.#engine
    const found = await connection.run(findSessionScript, [keys.session(id)], [], call.signal)
    if (!Array.isArray(found)) return null
    const [left, ttl, holder] = found as readonly (string | number)[]
    return { leftMs: Number(left), ttlMs: Number(ttl), holder: String(holder) }
  }
}

/** Reads the items of a page, some at a time, and leaves out what is gone. */
async function inSteps<T>(items: readonly string[], read: (item: string) => Promise<T | null>): Promise<T[]> {
  const found: T[] = []
  for (let start = 0; start < items.length; start += LIST_STEP) {
    const states = await Promise.all(items.slice(start, start + LIST_STEP).map(read))
    for (const state of states) if (state !== null) found.push(state)
  }
  return found
}
