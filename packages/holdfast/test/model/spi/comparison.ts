/**
 * The same commands for two engines, the first of which is the model. What a command refers to is settled here, so
 * that both are asked the very same; every answer, and every wait that ends meanwhile, must be the same too.
 */
import assert from 'node:assert/strict'
import { callWith } from '../../../src/base/aborting.ts'
import { newAttempt, publicIdOf, type Random } from '../../../src/base/ids.ts'
import { listAll } from '../../../src/kit/backend-kit.ts'
import type { AcquireRequest, Call, Claim, Grant, KeepAliveResult } from '../../../src/spi.ts'
import type { FakeClock } from '../../../src/testing/fake-clock.ts'
import { seededRandom } from '../../../src/testing/seeded-random.ts'
import { CLIENTS, names, type SpiCommand, ttls } from './commands.ts'
import { type Outcome, outcomeOf, type Session, type Side, type Wait } from './side.ts'

export interface KnownSession {
  readonly number: number
  readonly id: string
  readonly ttlMs: number
  readonly holder: string
  /** The clients through which it can be used; the first one opened it. */
  readonly clients: number[]
  /** When the engine must have forgotten it. */
  expiresAtMs: number
}

export interface KnownAttempt {
  readonly request: AcquireRequest
  readonly session: KnownSession
  /** Through which client it was first asked for: that one hears of its turn at once. */
  readonly client: number
  state: 'waiting' | 'held' | 'over'
}

const REAL_PATIENCE_MS = 3_000

export class Comparison {
  readonly clock: FakeClock
  readonly sides: readonly [Side, Side]
  readonly sessions: KnownSession[] = []
  readonly attempts: KnownAttempt[] = []
  /** The attempt of every wait. */
  readonly waits: KnownAttempt[] = []
  readonly #random: Random = seededRandom(42)

  constructor(clock: FakeClock, sides: readonly [Side, Side]) {
    this.clock = clock
    this.sides = sides
  }

  call(): Call {
    return callWith()
  }

  // --- what a command refers to ----------------------------------------------------------------------------

  newSession(command: Extract<SpiCommand, { do: 'open' }>): KnownSession {
    const number = this.sessions.length
    const session: KnownSession = {
      number,
      id: this.#random.id() + this.#random.id(),
      ttlMs: ttls[command.ttl % ttls.length] ?? ttls[0],
      holder: `holder ${number % 3}`,
      clients: [command.client % CLIENTS],
      expiresAtMs: 0,
    }
    this.sessions.push(session)
    return session
  }

  /** One of the latest: old ones are mostly dead. */
  session(number: number): KnownSession {
    return latest(this.sessions, number, 5)
  }

  attempt(number: number): KnownAttempt | undefined {
    return this.attempts.length === 0 ? undefined : latest(this.attempts, number, 9)
  }

  newAttempt(command: Extract<SpiCommand, { do: 'try' | 'enqueue' }>): KnownAttempt {
    const { mode, weight, capacity, lockDelayMs, note } = command
    const name = this.name(command.name)
    const session = this.session(command.session)
    const attempt: KnownAttempt = {
      session,
      client: this.clientOf(session, command.via),
      request: {
        name,
        attempt: newAttempt(this.#random),
        mode,
        weight,
        capacity,
        lockDelayMs,
        ...(note && { note: `note ${this.attempts.length}` }),
      },
      state: 'over',
    }
    this.attempts.push(attempt)
    return attempt
  }

  name(number: number): string {
    return names[number % names.length] ?? names[0]
  }

  clientOf(session: KnownSession, via: number): number {
    const client = session.clients[via % session.clients.length]
    assert(client !== undefined)
    return client
  }

  sessionOn(side: Side, session: KnownSession, via: number): Session {
    const client = this.clientOf(session, via)
    const found = side.sessions.get(`${session.number}@${client}`)
    assert(found !== undefined)
    return found
  }

  claimsOf(session: KnownSession, state: KnownAttempt['state']): Claim[] {
    return this.attempts
      .filter((attempt) => attempt.session === session && attempt.state === state)
      .map(({ request: { name, attempt } }) => ({ name, attempt }))
  }

  // --- asking and comparing --------------------------------------------------------------------------------

  /** Asks both, the model first. */
  async ask<T>(question: (side: Side) => Promise<T>): Promise<readonly [Outcome<T>, Outcome<T>]> {
    return [await outcomeOf(question(this.sides[0])), await outcomeOf(question(this.sides[1]))]
  }

  /** Asks both; the answers must be equal as `view` shows them. Returns the model's. */
  async same<T>(
    question: (side: Side) => Promise<T>,
    view: (answer: T, side: Side) => unknown = (answer) => answer,
  ): Promise<T | undefined> {
    const outcomes = await this.ask(question)
    this.#expectEqual(outcomes, view)
    return 'answer' in outcomes[0] ? outcomes[0].answer : undefined
  }

  #expectEqual<T>(
    outcomes: readonly [Outcome<T>, Outcome<T>],
    view: (answer: T, side: Side) => unknown,
  ): void {
    const [model, other] = this.sides.map((side, index) => {
      const outcome = outcomes[index]
      assert(outcome !== undefined)
      return 'answer' in outcome ? view(outcome.answer, side) : outcome
    })
    assert.deepEqual(other, model, `${this.sides[1].title} answers other than ${this.sides[0].title}`)
  }

  viewGrant(grant: Grant<'fenced'>, side: Side, session: KnownSession): unknown {
    // An engine may skip numbers, so what rests on the token is compared by its order.
    const { since, token, grantId: _, ...facts } = grant
    const endsMs = since.monotonicMs + grant.ttlMs
    assert(
      endsMs <= session.expiresAtMs,
      `${side.title}: a grant counts for longer than its session (T64, T65)`,
    )
    const id = publicIdOf(grant.attempt)
    // Two clients of one session know of each other's keep-alives or not; either is right as long as it is safe.
    const place = side.place(this.clientOf(session, 0), grant.name)
    return {
      ...facts,
      token: side.token(place, id, token),
      endsMs: session.clients.length === 1 ? endsMs : 'in time',
    }
  }

  viewKept(kept: KeepAliveResult<'fenced'>, side: Side, session: KnownSession): unknown {
    if (kept.kind === 'gone') return kept
    assert(
      kept.since.monotonicMs === this.clock.monotonicMs(),
      `${side.title}: a keep-alive counts from its sending`,
    )
    const byAttempt = <C extends { readonly attempt: string }>(claims: readonly C[]) =>
      [...claims].sort((a, b) => (a.attempt < b.attempt ? -1 : 1))
    const claimOnly = ({ name, attempt }: Claim) => ({ name, attempt })
    return {
      ttlMs: kept.ttlMs,
      lost: byAttempt(kept.lost),
      granted: byAttempt(kept.granted).map((grant) => this.viewGrant(grant, side, session)),
      unlisted: byAttempt(kept.unlisted).map(claimOnly),
    }
  }

  /**
   * Lets what both have to do by themselves happen, and compares all waits, all states and the order of all grants. A
   * turn must be announced at once; that a wait is over for another reason may be noticed at the next look, unless `all`.
   */
  async settle(all = false): Promise<void> {
    const [model, other] = this.sides
    const isOverdue = (wait: Wait, at: number) => {
      const outcome = model.waits[at]?.outcome
      return wait.outcome === undefined && outcome !== undefined && (all || isGrant(outcome))
    }
    await turn()
    const startedMs = performance.now()
    while (other.waits.some(isOverdue)) {
      assert(
        performance.now() - startedMs < REAL_PATIENCE_MS,
        `${other.title}: a wait that has ended goes on`,
      )
      await (performance.now() - startedMs < 5 ? turn() : new Promise((done) => setTimeout(done, 1)))
    }
    for (const at of this.waits.keys()) this.#compareWait(at)
    await this.#compareStates()
    assert.deepEqual(other.grantOrder, model.grantOrder, 'grants come in the same order')
    for (const side of this.sides) side.step++
  }

  async startWatching(): Promise<void> {
    for (const side of this.sides) side.startWatching()
    await this.clock.settle()
  }

  /** Compares the events about each claim. The order between two claims is left open: an engine may notice expiries together. */
  compareWatches(): void {
    const [model, other] = this.sides.map(({ told }) => [...told].sort(([a], [b]) => (a < b ? -1 : 1)))
    assert.deepEqual(other, model, `${this.sides[1].title} tells other events than ${this.sides[0].title}`)
  }

  #compareWait(at: number): void {
    const [model, other] = [this.sides[0].waits[at], this.sides[1].waits[at]]
    const session = this.waits[at]?.session
    assert(model !== undefined && other !== undefined && session !== undefined)
    if (model.outcome === undefined) assert.equal(other.outcome, undefined, 'a wait ends that should go on')
    if (model.outcome === undefined || other.compared === 'done') return
    if (other.outcome === undefined) {
      other.compared = 'late'
      return
    }
    // Who looks late may see what came of it in the end: a place that was given up, or a session that is gone.
    if (other.compared === 'late') assert(!isGrant(other.outcome), 'a turn that nobody else sees')
    else
      this.#expectEqual([model.outcome, other.outcome], (result, side) =>
        result.kind === 'granted' ? this.viewGrant(result.grant, side, session) : result,
      )
    other.compared = 'done'
  }

  /** Compares everything that can be seen from outside. */
  async #compareStates(): Promise<void> {
    for (const client of [0, CLIENTS - 1])
      await this.same(
        (side) => listAll(side.client(client), '', this.call()),
        (states, side) => states.map((state) => side.state(client, state)),
      )
  }
}

function latest<T>(all: readonly T[], number: number, among: number): T {
  const found = all[all.length - 1 - (number % Math.min(all.length, among))]
  assert(found !== undefined)
  return found
}

function isGrant(outcome: NonNullable<Wait['outcome']>): boolean {
  return 'answer' in outcome && outcome.answer.kind === 'granted'
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
