/** The SPI over an engine of this process. Every effect is applied within the call itself. */

import { type Clock, instantOf } from '../../base/clock.ts'
import { publicIdOf, type Random } from '../../base/ids.ts'
import { pageOf, prolongedSince, raisedTtlMs } from '../../kit/backend-kit.ts'
import type { Asker } from '../../kit/lane.ts'
import { Lifetime } from '../../kit/lifetime.ts'
import { forceRelease, forget, resize } from '../../kit/rules.ts'
import type { SessionFacts } from '../../kit/session.ts'
import { type Done, StepSession, type StepWork } from '../../kit/step-session.ts'
import { WaitingRoom } from '../../kit/waiting-room.ts'
import type {
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  CapacityChange,
  ForgetResult,
  HolderKey,
  InspectCall,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  ResizeResult,
  SessionHandle,
  SessionRequest,
  SessionState,
  WatchEvent,
} from '../../spi.ts'
import type { MemoryEngine } from './engine.ts'
import { describeSession, type Room, type Session } from './state.ts'
import { watch } from './watch.ts'

export interface MemoryBackendOptions {
  readonly engine: MemoryEngine
  /** Whether the engine ends with this backend. */
  readonly ownsEngine: boolean
  readonly info: BackendInfo<'fenced'>
  readonly clock: Clock
  readonly random: Random
}

/** State that the backend, its sessions and its watches share. */
export interface Connection {
  readonly engine: MemoryEngine
  readonly namespace: string
  readonly clock: Clock
  readonly lifetime: Lifetime
  readonly room: Room
}

export class MemoryBackend implements Backend<'fenced'> {
  readonly info: BackendInfo<'fenced'>
  readonly clock: Clock
  readonly random: Random
  readonly #connection: Connection
  readonly #ownsEngine: boolean

  constructor({ engine, ownsEngine, info, clock, random }: MemoryBackendOptions) {
    this.info = info
    this.clock = clock
    this.random = random
    this.#ownsEngine = ownsEngine
    const { namespace } = info
    const lifetime = new Lifetime('memory', clock)
    this.#connection = { engine, namespace, clock, lifetime, room: new WaitingRoom({ backend: 'memory' }) }
  }

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'fenced'>> {
    const { engine, namespace } = this.#begin(call)
    const since = instantOf(this.clock)
    const ttlMs = raisedTtlMs(this.info, request.ttlMs)
    const session = engine.step((table) => table.open(namespace, { ...request, ttlMs }))
    return new MemorySession(this.#connection, session, { ...session, since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<BackendSession<'fenced'> | null> {
    const { engine, namespace } = this.#begin(call)
    const now = instantOf(this.clock)
    return engine.step((table) => {
      const found = table.session(namespace, String(handle.id))
      if (found === undefined) return null
      const since = prolongedSince(now, { ttlMs: found.ttlMs, leftMs: found.expiresAtMs - table.nowMs })
      return new MemorySession(this.#connection, found, { ...found, since })
    })
  }

  async inspect(name: string, call: InspectCall): Promise<NameState | null> {
    const { engine, namespace } = this.#begin(call)
    return engine.inspect(namespace, name, call.holdersOnly)
  }

  async list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>> {
    const { engine, namespace } = this.#begin(call)
    return engine.list(namespace, prefix, page)
  }

  async sessions(page: PageRequest, call: Call): Promise<Page<SessionState>> {
    const { engine, namespace } = this.#begin(call)
    return engine.step((table) => {
      const own = [...table.sessions].filter((session) => session.namespace === namespace)
      const { items, next } = pageOf(own, page, ({ id }) => publicIdOf(id))
      return { items: items.map((session) => describeSession(session, table.nowMs)), next }
    })
  }

  async check({ name, id, token }: HolderKey, call: Call): Promise<boolean> {
    const { engine, namespace } = this.#begin(call)
    const holders = engine.step((table) => table.find({ namespace, name })?.holders.values() ?? [])
    return [...holders].some((claim) => publicIdOf(claim.attempt) === id && claim.token === token)
  }

  async forceRelease(
    name: string,
    ids: readonly string[],
    reason: string,
    call: OperatorCall,
  ): Promise<number> {
    const { engine, namespace } = this.#begin(call)
    return engine.step((table) => forceRelease(table, { namespace, name }, ids, reason, call))
  }

  async resize(name: string, capacity: CapacityChange, call: OperatorCall): Promise<ResizeResult> {
    const { engine, namespace } = this.#begin(call)
    return engine.step((table) => resize(table, { namespace, name }, capacity, call))
  }

  async forget(name: string, data: string, call: OperatorCall): Promise<ForgetResult> {
    const { engine, namespace } = this.#begin(call)
    return engine.step((table) => forget(table, { namespace, name }, data, call))
  }

  watch(prefix: string, options: { readonly cursor?: string }, call: Call): AsyncIterable<WatchEvent> {
    return watch(this.#connection, prefix, options.cursor, call)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { lifetime, engine, room } = this.#connection
    room.close(lifetime.end())
    // Watches find out.
    engine.log.changed()
    if (this.#ownsEngine) engine[Symbol.dispose]()
  }

  #begin(call: Call): Connection {
    this.#connection.lifetime.begin(call)
    return this.#connection
  }
}

/** Its steps are applied within the call itself. */
class MemorySession extends StepSession<Session> {
  protected readonly clock
  protected readonly lifetime
  protected readonly room
  readonly #engine

  constructor({ engine, clock, lifetime, room }: Connection, owner: Session, facts: SessionFacts) {
    super(owner, facts)
    this.#engine = engine
    this.clock = clock
    this.lifetime = lifetime
    this.room = room
    owner.rooms.add(room)
  }

  protected async step<T>(call: Call, work: StepWork<Session, T>): Promise<T> {
    this.lifetime.begin(call)
    return this.#engine.step(work)
  }

  protected prolong<T>(call: Call, work: StepWork<Session, T>): Promise<T> {
    return this.step(call, work)
  }

  protected send<T>(_call: Call, work: StepWork<Session, T>, asker: Asker<Done<T>>): void {
    let value: T
    try {
      value = this.#engine.step(work)
    } catch (error) {
      asker.failed(error)
      return
    }
    asker.answered({ value })
  }
}
