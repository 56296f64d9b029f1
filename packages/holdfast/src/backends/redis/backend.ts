/** The SPI over the user's Redis client. */

import type { Subscription } from '../../clients/redis/index.ts'
import { callWith } from '../../core/aborting.ts'
import { prolongedSince } from '../../core/backend-kit.ts'
import { type Clock, instantOf } from '../../core/clock.ts'
import { ClosedError, UnsupportedError } from '../../core/errors.ts'
import type { Random } from '../../core/ids.ts'
import { compareNames } from '../../core/names.ts'
import type {
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  CapacityChange,
  Fencing,
  InspectCall,
  NameState,
  OperatorCall,
  SessionHandle,
  SessionRequest,
} from '../../spi.ts'
import type { Confirming } from './confirming.ts'
import type { Engine } from './engine.ts'
import { readName } from './looking.ts'
import { forceReleaseScript, forgetScript, inspectScript, resizeScript } from './scripts/operators.ts'
import { findSessionScript, openSessionScript } from './scripts/sessions.ts'
import { withoutRights } from './server-checks.ts'
import { RedisSession, type SessionTools } from './session.ts'
import { SharedWork } from './shared-work.ts'
import { WaitingRoom } from './waiting-room.ts'

export interface RedisBackendOptions<F extends Fencing> {
  readonly engine: Engine
  readonly info: BackendInfo<F>
  readonly pollMs: number
  readonly confirming: Confirming | null
  /** Refuses a server that cannot be used; asked before the first session. */
  readonly checkServer: (call: Call) => Promise<void>
  /** Closes the client, if it is ours. */
  readonly closeClient: () => Promise<void>
}

/** How many names one step of a listing looks at. */
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
  readonly #checked: SharedWork<void>
  /** One subscription for the process, from the first session on: the first who waits shall not wait for it. */
  readonly #subscribed: SharedWork<Subscription>
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
    this.#subscribed = new SharedWork((signal) =>
      engine.connection.subscribe(
        this.#channel,
        (message) => this.#room.receive(message),
        () => this.#room.lookForAll(),
        signal,
      ),
    )
    this.#checked = new SharedWork(async (signal) => {
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
    const found = await this.#engine.connection.run(
      findSessionScript,
      [this.#engine.keys.session(id)],
      [],
      call.signal,
    )
    if (!Array.isArray(found)) return null
    const [left, ttl, holder] = found as readonly (string | number)[]
    const ttlMs = Number(ttl)
    const since = prolongedSince(now, { ttlMs, leftMs: Number(left) })
    return new RedisSession<F>(this.#tools, { id, ttlMs, holder: String(holder), since })
  }

  async inspect(name: string, call: InspectCall): Promise<NameState | null> {
    this.#begin()
    const key = this.#engine.keys.lock(name)
    const wanted = call.holdersOnly === true ? ['holders'] : []
    return readName(name, await this.#engine.run(inspectScript, key, wanted, call))
  }

  async list(prefix: string, call: Call): Promise<readonly NameState[]> {
    this.#begin()
    const { keys, connection } = this.#engine
    if (!keys.areOurs)
      throw new UnsupportedError(
        'redis: names cannot be listed where the option `key` chooses the keys, because a key does not tell its name.',
      )
    const pattern = keys.pattern(connection.keyPrefix, prefix)
    const names = new Set<string>()
    for (const node of await connection.nodes(call.signal)) {
      let cursor = '0'
      do {
        const reply = await node.send(['SCAN', cursor, 'MATCH', pattern, 'COUNT', '1000'], call.signal)
        const [next, found] = reply as [string, readonly string[]]
        cursor = String(next)
        for (const key of found) {
          const name = keys.nameOf(key.slice(connection.keyPrefix.length))
          if (name?.startsWith(prefix)) names.add(name)
        }
      } while (cursor !== '0')
    }
    return this.#inspectAll([...names].sort(compareNames), call)
  }

  async check(
    holder: { readonly name: string; readonly id: string; readonly token: bigint },
    call: Call,
  ): Promise<boolean> {
    const found = await this.inspect(holder.name, call)
    return found?.holders.some(({ id, token }) => id === holder.id && token === holder.token) ?? false
  }

  /** The reason is for core's events; the server does not keep it. */
  async forceRelease(
    name: string,
    ids: readonly string[],
    _reason: string,
    call: OperatorCall,
  ): Promise<number> {
    this.#begin()
    const key = this.#engine.keys.lock(name)
    return Number(await this.#engine.operate(forceReleaseScript, key, [String(FORCE_MARK_MS), ...ids], call))
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

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    const error = new ClosedError('The redis backend')
    this.#ending.abort(error)
    this.#room.close(error)
    this.#options.confirming?.close()
    this.#engine.close()
    await this.#options.closeClient()
  }

  #begin(): void {
    if (this.#isClosed) throw new ClosedError('The redis backend')
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

  async #inspectAll(names: readonly string[], call: Call): Promise<NameState[]> {
    const states: NameState[] = []
    for (let start = 0; start < names.length; start += LIST_STEP) {
      const step = names.slice(start, start + LIST_STEP)
      const found = await Promise.all(step.map((name) => this.inspect(name, call)))
      for (const state of found) if (state !== null) states.push(state)
    }
    return states
  }
}
