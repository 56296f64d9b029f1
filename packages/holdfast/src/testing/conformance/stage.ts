/**
 * Where a case plays: a world, the actors in it, and its time. Every actor has a client of its own unless the case
 * says otherwise, so that whatever is shown is shown across processes.
 */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Clock, instantOf } from '../../base/clock.ts'
import { systemRandom } from '../../base/ids.ts'
import type { Locker } from '../../base/types.ts'
import { listAll } from '../../kit/backend-kit.ts'
import { WATCHED_FOR_MS } from '../../kit/follow-log.ts'
import { createLocker } from '../../locker/locker.ts'
import type { Backend, BackendSession, Fencing, Grant, NameState } from '../../spi.ts'
import { Actor } from './actor.ts'
import { call } from './requests.ts'
import type { ClientOptions, World } from './world.ts'
import { type Replacements, replace } from './wrapping.ts'

export interface ActorOptions {
  /** The client that it uses; by default one of its own. */
  readonly on?: Backend
  /** By default so long that no case outlives it. */
  readonly ttlMs?: number
  readonly holder?: string
  /** The lock-delay of its requests, which an engine with `lockDelay: 'session'` is told when the session opens. */
  readonly lockDelayMs?: number
}

/** How many times the short TTL an ordinary actor's session lasts without a keep-alive. */
const LONG_LIFE = 20

export class Stage {
  readonly world: World
  #observer: Promise<Backend> | undefined
  readonly #lockers: Locker[] = []
  readonly #outcomes: Promise<unknown>[] = []
  #actors = 0

  constructor(world: World) {
    this.world = world
  }

  get clock(): Clock {
    return this.world.clock
  }

  get ttlMs(): number {
    return this.world.ttlMs
  }

  client(options?: ClientOptions): Promise<Backend<Fencing>> {
    return this.world.client(options)
  }

  /** A client that holds nothing, for looking. */
  observer(): Promise<Backend> {
    this.#observer ??= this.client()
    return this.#observer
  }

  async inspect(name: string): Promise<NameState | null> {
    return (await this.observer()).inspect(name, call())
  }

  async list(prefix = ''): Promise<readonly NameState[]> {
    return listAll(await this.observer(), prefix, call())
  }

  async actor(options: ActorOptions = {}): Promise<Actor> {
    const backend = options.on ?? (await this.client())
    const ttlMs = Math.min(backend.info.ttlMs.max, options.ttlMs ?? this.ttlMs * LONG_LIFE)
    const holder = options.holder ?? `actor ${++this.#actors}`
    const prolongedMs = this.clock.monotonicMs()
    const { lockDelayMs = 0 } = options
    const delay = backend.info.lockDelay === 'session' ? { lockDelayMs } : {}
    const session = await backend.openSession({ id: newSessionId(), ttlMs, holder, ...delay }, call())
    return new Actor(this, backend, session, { holder, prolongedMs })
  }

  async actors(count: number, options: ActorOptions = {}): Promise<Actor[]> {
    const actors: Actor[] = []
    while (actors.length < count) actors.push(await this.actor(options))
    return actors
  }

  async two(): Promise<[Actor, Actor]> {
    return [await this.actor(), await this.actor()]
  }

  async three(): Promise<[Actor, Actor, Actor]> {
    return [await this.actor(), await this.actor(), await this.actor()]
  }

  /** An actor whose session lasts one short TTL. */
  async mortal(options: ActorOptions = {}): Promise<Actor> {
    await this.observer()
    return this.actor({ ttlMs: this.ttlMs, ...options })
  }

  /** The mortal comes last into the world, so that no part of its life is spent on setting up the others. */
  async mortalAndOne(options: ActorOptions = {}): Promise<[Actor, Actor]> {
    const other = await this.actor()
    return [await this.mortal(options), other]
  }

  async mortalAndTwo(): Promise<[Actor, Actor, Actor]> {
    const others = await this.two()
    return [await this.mortal(), ...others]
  }

  /** Goes on with an actor's session in another client, knowing only the handle, as text. */
  async attach(actor: Actor, on?: Backend): Promise<Actor | null> {
    const backend = on ?? (await this.client())
    const handle = JSON.parse(JSON.stringify(actor.session.handle)) as BackendSession['handle']
    const session = await backend.attachSession(handle, call())
    return session === null ? null : new Actor(this, backend, session, actor)
  }

  /** A locker with a client of its own, whose leases have the short TTL. */
  async locker(options?: ClientOptions, faults: Replacements<Fencing> = {}): Promise<Locker> {
    const backend = replace(await this.client(options), faults)
    const locker = createLocker(backend, { ttlMs: this.ttlMs, waitMs: this.ttlMs * 10 })
    this.#lockers.push(locker)
    return locker
  }

  async twoLockers(): Promise<[Locker, Locker]> {
    return [await this.locker(), await this.locker()]
  }

  /** Before the world ends: what lockers still do in the background ends too. */
  async end(): Promise<void> {
    await Promise.all(this.#lockers.map((locker) => this.drive(locker.close())))
  }

  passTime(ms: number): Promise<void> {
    return this.world.passTime(ms)
  }

  /**
   * Longer than an engine keeps its log open without a watcher, `WATCHED_FOR_MS`. On a clock that moves by itself nobody waits for a
   * minute: there it is three TTLs.
   */
  async beUnwatched(): Promise<void> {
    const startMs = this.clock.monotonicMs()
    await sleep(1)
    const movesByItself = this.clock.monotonicMs() > startMs
    await this.passTime(movesByItself ? this.ttlMs * 3 : WATCHED_FOR_MS + this.ttlMs)
  }

  /** Long enough that whatever is going to happen by itself has happened, much shorter than a TTL. */
  quiet(): Promise<void> {
    return this.passTime(this.ttlMs / 10)
  }

  /** Lets so much time pass that an actor who says nothing is certainly gone. */
  outlive(actor: Actor): Promise<void> {
    return this.passTime(
      actor.session.ttlMs + actor.backend.info.expirySlackMs(actor.session.ttlMs) + this.world.resolutionMs,
    )
  }

  /** Lets time pass until the holder is just about to stop believing (G3): `since + TTL − drift`. */
  async untilBeliefEnds(actor: Actor, grant: Pick<Grant, 'since' | 'ttlMs'>): Promise<void> {
    const marginMs = Math.max(actor.backend.info.driftMs(grant.ttlMs), this.world.resolutionMs)
    const leftMs = grant.since.monotonicMs + grant.ttlMs - marginMs - this.clock.monotonicMs()
    assert(leftMs >= 0, `belief ended ${-leftMs} ms ago`)
    await this.passTime(leftMs)
  }

  /** Work that goes on while the case does something else, and that may be left to itself if the case fails. */
  start<T>(work: Promise<T>): Promise<T> {
    work.catch(() => {})
    return work
  }

  /** Waits, with small steps of time, until it is so. */
  async eventually(
    what: string,
    holds: () => boolean | Promise<boolean>,
    withinMs = this.ttlMs,
  ): Promise<void> {
    const endMs = instantOf(this.clock).monotonicMs + withinMs
    await this.passTime(0)
    while (!(await holds())) {
      assert(this.clock.monotonicMs() < endMs, `not within ${withinMs} ms: ${what}`)
      await this.passTime(this.ttlMs / 100)
    }
  }

  /** Lets time pass while `work` runs. Its result is kept: a dropped lease would be released. */
  async drive<T>(work: Promise<T>, withinMs = this.ttlMs * LONG_LIFE): Promise<T> {
    let done = false
    const finish = () => {
      done = true
    }
    work.then(finish, finish)
    await this.eventually('the work is done', () => done, withinMs)
    this.#outcomes.push(work)
    return work
  }
}

export function newSessionId(): string {
  return systemRandom.id() + systemRandom.id()
}
