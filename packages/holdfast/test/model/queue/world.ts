/** Sessions with predecessor queues on one simulated store, and everything that was asked of them. */
import assert from 'node:assert/strict'
import { callWith } from '../../../src/base/aborting.ts'
import { type Instant, instantOf } from '../../../src/base/clock.ts'
import { isHoldfastError, outcomeOf } from '../../../src/base/errors.ts'
import { Lifetime } from '../../../src/kit/lifetime.ts'
import { weightInUse } from '../../../src/kit/ordered-store.ts'
import { PredecessorQueue } from '../../../src/kit/predecessor-queue.ts'
import {
  type AcquireRequest,
  type AcquireResult,
  type EnqueueResult,
  LOCK_CAPACITY,
} from '../../../src/spi.ts'
import { createFakeClock } from '../../../src/testing/fake-clock.ts'
import { seededRandom } from '../../../src/testing/seeded-random.ts'
import { peek } from '../../rig.ts'
import { SimulatedStore, type StoreBreak, type StoreKind } from '../../simulated-store.ts'
import type { Runs } from '../runs.ts'
import { type QueueCommand, SESSIONS } from './commands.ts'

const TTL_MS = 9_000
const NAMES = ['lock', 'permits']

interface Session {
  readonly id: string
  readonly queue: PredecessorQueue
  since: Instant
}

interface Asked {
  readonly request: AcquireRequest
  readonly session: Session
  readonly stop: AbortController
  readonly seen: ReturnType<typeof peek<AcquireResult<'fenced'> | EnqueueResult<'fenced'>>>
}

export class QueueWorld {
  readonly clock = createFakeClock()
  readonly store: SimulatedStore
  readonly #sessions: Session[] = []
  readonly #expired: Session[] = []
  readonly #asked: Asked[] = []
  /** Attempts that a caller, an operator or the network has done something to. */
  readonly #disturbed = new Set<string>()
  #capacity = 3
  #opened = 0
  #attempts = 0
  #hasLosses = false

  constructor(kind: StoreKind, broken?: StoreBreak) {
    this.store = new SimulatedStore(kind, broken)
    this.store.isHeld = true
    for (let at = 0; at < SESSIONS; at++) this.#open(at)
  }

  async play(commands: readonly QueueCommand[], runs?: Runs): Promise<void> {
    runs?.begin()
    for (const command of commands) {
      if (!(await this.#perform(command))) continue
      runs?.count(command.do)
      await this.clock.settle()
      this.#check()
    }
  }

  /** Everything is delivered, holders release, core abandons what is unknown. Then all that wait are granted, in the end. */
  async quiesce(): Promise<void> {
    for (let rounds = 0; rounds < 20 + 4 * this.#asked.length; rounds++) {
      await this.#deliverAll()
      if (this.#hasLosses) {
        for (const session of [...this.#sessions, ...this.#expired]) void this.#keepAlive(session)
        await this.clock.advance(1_000)
        await this.#deliverAll()
      }
      this.#check()
      for (const { request, seen, stop } of this.#asked) {
        if (seen.status === 'rejected' && outcomeOf(seen.reason) === 'unknown') this.store.abandon(request)
        assert(
          !stop.signal.aborted || seen.status !== 'pending',
          `${request.attempt} was cancelled, and is pending`,
        )
      }
      const holder = NAMES.flatMap((name) => this.store.entries(name)).find(({ token }) => token !== null)
      if (holder !== undefined) this.store.remove(holder)
    }
    for (const asked of this.#asked) this.#judge(asked)
    for (const name of NAMES) assert.equal(this.store.show(name), '', `G6 left behind: ${name}`)
    assert.equal(this.store.watchers, 0, 'watches are left behind')
    assert.equal(this.clock.pendingTimers, 0, 'timers are left behind')
  }

  #open(at: number): void {
    const id = `session ${++this.#opened}`
    const session: Session = {
      id,
      since: instantOf(this.clock),
      queue: new PredecessorQueue({
        lifetime: new Lifetime('simulated', this.clock),
        store: this.store.openQueue(id),
        clock: this.clock,
        random: seededRandom(this.#opened),
        session: () => ({ since: session.since, ttlMs: TTL_MS }),
      }),
    }
    this.#sessions[at] = session
  }

  /** False if there is nothing that the command could refer to. */
  async #perform(command: QueueCommand): Promise<boolean> {
    const { store, clock } = this
    switch (command.do) {
      case 'join':
      case 'try': {
        const session = this.#sessionAt(command.session)
        const maxWaiters = 'maxWaiters' in command ? command.maxWaiters : null
        const isLock = command.mode !== 'permits'
        const weight = command.mode === 'exclusive' ? LOCK_CAPACITY : isLock ? 1 : command.weight
        this.#ask(command.do, session, {
          name: isLock ? 'lock' : 'permits',
          attempt: `${command.mode[0]}${++this.#attempts}`,
          mode: command.mode,
          weight,
          capacity: isLock ? LOCK_CAPACITY : this.#capacity,
          lockDelayMs: 0,
          ...(maxWaiters !== null && { maxWaiters }),
        })
        return true
      }
      case 'repeat': {
        const asked = this.#pick(command.pick, ({ seen }) => seen.status === 'pending')
        if (asked === undefined) return false
        // One of the two calls may be refused, or be granted and release, while the other still waits.
        this.#disturbed.add(asked.request.attempt)
        this.#ask('join', asked.session, asked.request)
        return true
      }
      case 'cancel': {
        const asked = this.#pick(
          command.pick,
          ({ seen, stop }) => seen.status === 'pending' && !stop.signal.aborted,
        )
        if (asked === undefined) return false
        this.#disturbed.add(asked.request.attempt)
        asked.stop.abort()
        await clock.settle()
        assert.notEqual(asked.seen.status, 'pending', 'a cancelled call settles soon')
        return true
      }
      case 'release': {
        const asked = this.#pick(command.pick, ({ seen }) => seen.value?.kind === 'granted')
        return asked !== undefined && store.remove(asked.request)
      }
      case 'abandon':
      case 'delete': {
        const asked = this.#pick(command.pick, () => true)
        if (asked === undefined) return false
        this.#disturbed.add(asked.request.attempt)
        if (command.do === 'abandon') store.abandon(asked.request)
        return command.do === 'abandon' || store.remove(asked.request)
      }
      case 'expire':
        this.#expired.push(this.#sessionAt(command.session))
        store.endSession(this.#sessionAt(command.session).id)
        this.#open(command.session)
        return true
      case 'keepAlive':
        void this.#keepAlive(this.#sessionAt(command.session))
        return true
      case 'resize':
        return this.#resize(command.capacity)
      case 'deliver': {
        for (let count = 0; count < command.count && store.inFlight.length > 0; count++) {
          store.inFlight.splice(command.pick % store.inFlight.length, 1)[0]?.deliver()
          await clock.settle()
        }
        return true
      }
      case 'lose': {
        this.#hasLosses = true
        const [message] = store.inFlight.splice(command.pick % Math.max(1, store.inFlight.length), 1)
        message?.lose(command.silently)
        return message !== undefined
      }
      case 'disconnect':
        this.#hasLosses = true
        store.disconnect(this.#sessionAt(command.session).id)
        return true
      case 'advance':
        this.#hasLosses = true
        await clock.advance(command.ms)
        return true
    }
  }

  #ask(how: 'join' | 'try', session: Session, request: AcquireRequest): void {
    const stop = new AbortController()
    const call = callWith(stop.signal)
    const answer =
      how === 'join' ? session.queue.enqueue(request, call) : session.queue.tryAcquire(request, call)
    this.#asked.push({
      request,
      session,
      stop,
      seen: peek<AcquireResult<'fenced'> | EnqueueResult<'fenced'>>(answer),
    })
  }

  async #keepAlive(session: Session): Promise<void> {
    if (!this.store.isOpen(session.id)) return session.queue.end()
    session.since = instantOf(this.clock)
    const waiting = this.#asked.filter((asked) => asked.session === session).map(({ request }) => request)
    for (const grant of await session.queue.check(waiting, callWith())) this.#judgeGrant(grant)
  }

  /** As an operator's resize: not below what is in use, nor below what a waiter asks for. */
  #resize(capacity: number): boolean {
    const entries = this.store
      .entries('permits')
      .map((entry) => ({ ...entry, granted: entry.token !== null }))
    if (entries.length === 0 || entries.some(({ weight }) => weight > capacity)) return false
    if (weightInUse(entries, this.#capacity) > capacity) return false
    this.#capacity = capacity
    this.store.resize('permits', capacity)
    return true
  }

  async #deliverAll(): Promise<void> {
    await this.clock.settle()
    for (
      let message = this.store.inFlight.shift();
      message !== undefined;
      message = this.store.inFlight.shift()
    ) {
      message.deliver()
      if (this.store.inFlight.length === 0) await this.clock.settle()
    }
  }

  #check(): void {
    assert.deepEqual(this.store.violations, [])
    for (const { seen } of this.#asked) if (seen.value?.kind === 'granted') this.#judgeGrant(seen.value.grant)
  }

  #judgeGrant({ attempt, token }: { readonly attempt: string; readonly token: bigint }): void {
    // A second copy of a request that lands after the key was deleted is granted once more (T84, late duplicates).
    assert(this.store.tokensOf(attempt).includes(token), `G2 ${attempt} was told another token`)
  }

  /** Judges the end of an attempt. */
  #judge({ request, session, seen }: Asked): void {
    const { attempt } = request
    const wasDisturbed = this.#disturbed.has(attempt) || this.#hasLosses
    const isMismatch = isHoldfastError(seen.reason, 'CAPACITY_MISMATCH')
    const isFine =
      seen.status === 'fulfilled'
        ? seen.value?.kind !== 'session-gone' || !this.store.isOpen(session.id)
        : seen.status === 'rejected' && (wasDisturbed || isMismatch)
    assert(isFine, `G10 ${attempt} is ${seen.status}: ${seen.value?.kind ?? String(seen.reason)}`)
  }

  #sessionAt(at: number): Session {
    const session = this.#sessions[at]
    assert(session !== undefined)
    return session
  }

  #pick(pick: number, isMeant: (asked: Asked) => boolean): Asked | undefined {
    const meant = this.#asked.filter(isMeant)
    return meant[pick % Math.max(1, meant.length)]
  }
}
