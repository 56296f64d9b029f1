/** One rule that every conditional store keeps, as data: to be run by a test runner, by a tool, or by a test of the suite. */
import assert from 'node:assert/strict'
import type { ClaimStore, NameStore } from '../../kit/conditional-store.ts'
import { isEligible, type QueueEntry, type QueueView, watchedBy } from '../../kit/ordered-store.ts'
import type { QueuedClaim, StoredClaim, StoredName } from '../../kit/stored-name.ts'
import type { AcquireRequest, GrantedClaim } from '../../spi.ts'
import { call } from '../conformance/requests.ts'

/** Sessions and names of one namespace, in which nothing is when the case begins. */
export interface StoreWorld {
  readonly names: NameStore
  openSession(): Promise<StoreSessionWorld>
  /** A watch that has told nothing for so long is broken. By default 30 s, so that a busy machine does not fail. */
  readonly patienceMs?: number
  /** So much time passes at the engine and here. By default it is waited for. */
  pass?(ms: number): Promise<void>
  /** Makes the engine full until the result is called: it refuses what takes room. A world that cannot shows nothing of it. */
  fill?(): Promise<() => Promise<void>>
  close(): Promise<void>
}

export interface StoreSessionWorld {
  /** A session need not read more of its claims than the queue needs. */
  readonly claims: ClaimStore<QueuedClaim>
  /** The session ends at the engine, as if its time were over. It resolves when that has happened. */
  end(): Promise<void>
  /** The claims of the session for another process that goes on with it. Null: it has gone. */
  find(): Promise<ClaimStore<QueuedClaim> | null>
}

type SessionClaims = StoreSessionWorld['claims']

export interface StoreCase {
  /** Stable: `S17`. Never given to another case. */
  readonly rule: string
  /** A sentence, with the numbers of the guarantees and traps that it shows. */
  readonly title: string
  readonly topic: string
  /** Rejects if the rule is broken. */
  run(world: StoreWorld): Promise<void>
}

export interface StoreCaseBody {
  readonly rule: string
  readonly title: string
  readonly play: (stage: StoreStage) => Promise<void>
}

export function storeTopic(topic: string, bodies: readonly StoreCaseBody[]): readonly StoreCase[] {
  return bodies.map(({ rule, title, play }) => ({
    rule,
    title,
    topic,
    run: (world) => play(new StoreStage(world)),
  }))
}

/** For how long a case keeps a name closed. An engine may keep it so for longer. */
export const CLOSED_FOR_MS = 1_000
/** A time that an engine tells may be too short by its rounding. */
const MOST_LOOKS = 20
const SHORTEST_PAUSE_MS = 50

/** A claim that waits, as its join has answered. */
export interface WaitingClaim {
  readonly request: AcquireRequest
  readonly own: QueueEntry
  readonly queue: QueueView
}

/** The stage of the cases, with their stores. */
export class StoreStage {
  readonly #world: StoreWorld

  constructor(world: StoreWorld) {
    this.#world = world
  }

  get names(): NameStore {
    return this.#world.names
  }

  async session(): Promise<SessionClaims> {
    return (await this.#world.openSession()).claims
  }

  sessionThatEnds(): Promise<StoreSessionWorld> {
    return this.#world.openSession()
  }

  read(name: string): Promise<StoredName> {
    return this.names.read(name, call())
  }

  /** The attempts that hold the name. */
  async holders(name: string): Promise<string[]> {
    return (await this.read(name)).holders.map(({ attempt }) => attempt)
  }

  /** By the join, or by a confirm after it. */
  async take(
    claims: SessionClaims,
    request: AcquireRequest,
  ): Promise<GrantedClaim & { readonly token: bigint }> {
    const joined = await claims.join(request, true, call())
    if (joined.kind === 'granted') return granted(request, joined.token)
    const waiting = this.#waiting(request, joined)
    return granted(request, await this.confirm(claims, waiting))
  }

  async wait(claims: SessionClaims, request: AcquireRequest): Promise<WaitingClaim> {
    const waiting = this.#waiting(request, await claims.join(request, true, call()))
    assert(!isEligible(waiting.queue), 'the claim has to wait')
    return waiting
  }

  /** Looks, and confirms with what it has seen. */
  async confirm(claims: SessionClaims, { request, own }: WaitingClaim): Promise<bigint> {
    const view = (await claims.look(request, call())).queue(own, request.capacity)
    const confirmed = await claims.confirm(request, own, view, call())
    assert('kind' in confirmed, 'the claim is first, and is granted')
    return confirmed.token
  }

  /** The granting write of a store that compares ranges asks by itself whether anything older is in the way. */
  async refusesUnseen(claims: SessionClaims, waiting: WaitingClaim): Promise<void> {
    if (claims.comparesOrder) await this.refuses(claims, waiting, null)
  }

  /** The confirm of a claim that may not be granted any more. */
  async refuses(
    claims: SessionClaims,
    { request, own }: WaitingClaim,
    seen: QueueView | null,
  ): Promise<void> {
    const confirmed = await claims.confirm(request, own, seen, call())
    assert(!('kind' in confirmed), 'the claim is not granted')
  }

  /** Resolves when the closed name is open for this waiter: its time is over, or a watch has told so. */
  async untilOpen(claims: SessionClaims, { request, own }: WaitingClaim): Promise<void> {
    for (let looks = 0; looks < MOST_LOOKS; looks++) {
      const queue = (await claims.look(request, call())).queue(own, request.capacity)
      if (isEligible(queue)) return
      if (queue.closedForMs !== undefined) await this.#pass(Math.max(SHORTEST_PAUSE_MS, queue.closedForMs))
      else {
        const { told, stop } = this.wake(claims, watchedBy(queue, request.mode), queue.version)
        await this.#world.pass?.(CLOSED_FOR_MS)
        await this.changed(told)
        stop()
      }
    }
    assert.fail('the name stays closed')
  }

  /** Writes that take room are refused until the result is called. */
  async fill(): Promise<(() => Promise<void>) | undefined> {
    return this.#world.fill?.()
  }

  /** Resolves with what a watch of these keys tells. */
  wake(
    claims: SessionClaims,
    keys: Parameters<SessionClaims['watch']>[0],
    version: bigint,
  ): { readonly told: Promise<'changed' | 'lost'>; readonly stop: () => void } {
    const { promise, resolve } = Promise.withResolvers<'changed' | 'lost'>()
    return { told: promise, stop: claims.watch(keys, version, resolve) }
  }

  async changed(told: Promise<'changed' | 'lost'>): Promise<void> {
    const patience = Promise.withResolvers<'nothing'>()
    const timer = setTimeout(() => patience.resolve('nothing'), this.#world.patienceMs ?? 30_000)
    assert.equal(await Promise.race([told, patience.promise]), 'changed')
    clearTimeout(timer)
  }

  async #pass(ms: number): Promise<void> {
    if (this.#world.pass !== undefined) return this.#world.pass(ms)
    await new Promise((resolve) => setTimeout(resolve, ms))
  }

  #waiting(request: AcquireRequest, joined: Awaited<ReturnType<SessionClaims['join']>>): WaitingClaim {
    if (joined.kind !== 'created') assert.fail(`the claim is ${joined.kind}, and should wait`)
    const { own, name } = joined
    return { request, own, queue: name.queue(own, request.capacity) }
  }
}

function granted({ name, attempt }: AcquireRequest, token: bigint) {
  return { name, attempt, token, grantId: String(token) }
}

export function claimIn<C extends QueuedClaim = StoredClaim>(
  name: StoredName<C>,
  { attempt }: AcquireRequest,
): C {
  const claim = name.claim(attempt)
  assert(claim !== undefined, 'the claim is there')
  return claim
}
