/**
 * Every client serves terms of one election, and observes who leads. Terms read and write the guarded resource until they
 * have had enough, or are told to end; then they take their time. Clients stop serving, and replace their lockers, now and then.
 *
 *   T53        leadership is not given up while its term runs (also judged by `Checks.ended`)
 *   one-term   a client never runs two terms at once, and its tokens increase from term to term
 *   G3         the term's signal aborts when its lease is lost, and the health check says so
 *   leader     `leader` and `observe` show only leaders that there were, in their order, with their own value
 *   G10        when the faults are over there is a leader again, and observers know it
 */
import { isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import {
  type Election,
  election,
  type Leader,
  type Term,
} from '../../../packages/holdfast/src/recipes/election.ts'
import type { Client } from '../client.ts'
import { type Stream, stream } from '../random.ts'
import type { TrackedLease } from '../tracked.ts'
import type { World } from '../world.ts'
import { trackingLocker } from './tracking-locker.ts'

/** One of the names that operators hit. */
const NAME = 'a'
const LOOK_EVERY_MS = 200
/** The list is compared every 3 s, and an observer that is in doubt looks again after 6 s. */
const OBSERVED_WITHIN_MS = 12_000

/** Coverage that a thousand runs must reach to mean anything. */
export const electionCoverage: Readonly<Record<string, number>> = {
  term: 5_000,
  'serve ended': 1_000,
  'serve closed': 200,
  'term failed': 100,
  'first contact failed': 10,
  'stale term': 200,
  'observed leader': 5_000,
  'observed no leader': 500,
  'observed value': 1_000,
  'observer compared': 50,
  'guard refused': 200,
  'lost update control': 100,
  'hand-overs': 2_000,
}

interface RunningTerm {
  readonly id: string
  readonly sinceMs: number
}

/** Terms of office of all clients of a world. */
class Terms {
  readonly running = new Map<number, RunningTerm>()
  readonly lastTokens = new Map<number, bigint>()
  /** When a term was last seen to believe in its leadership. */
  ledAtMs = 0
}

const termsOf = new WeakMap<World, Terms>()

export async function electionWorkload(client: Client): Promise<void> {
  const { world, process } = client
  const terms = termsOf.get(world) ?? new Terms()
  termsOf.set(world, terms)
  // A crash takes the term with it.
  terms.running.delete(client.index)
  for (let stays = 0; !world.isStopping; stays++) {
    const dice = stream(world.settings.seed, 'election', client.address, stays)
    await new Stay(client, terms, dice).run()
    if (process !== client.process) return
    await process.sleep(dice.between(10, 3_000))
  }
}

/** From one call of `serve` to its end. */
class Stay {
  readonly #client: Client
  readonly #world: World
  readonly #terms: Terms
  readonly #dice: Stream
  readonly #election: Election<'fenced'>
  readonly #stop = new AbortController()
  readonly #enough = new Error('this client has had enough')
  readonly #failure = new Error('the term has failed')
  readonly #untilMs: number
  /** Terms that begin before then end at once. */
  readonly #hastyUntilMs: number
  #replaced: Promise<void> | undefined
  #told: { readonly leader: Leader<'fenced'> | null; readonly sinceMs: number } | undefined

  constructor(client: Client, terms: Terms, dice: Stream) {
    this.#client = client
    this.#world = client.world
    this.#terms = terms
    this.#dice = dice
    this.#election = election(trackingLocker(client), NAME)
    this.#untilMs = client.world.nowMs + dice.between(4_000, 50_000)
    this.#hastyUntilMs = dice.chance(0.15) ? client.world.nowMs + 4_000 : 0
  }

  async run(): Promise<void> {
    this.#look(this.#dice.chance(0.3))
    const observed = this.#observe()
    try {
      await this.#election.serve((term) => this.#work(term), { signal: this.#stop.signal })
      if (!this.#stop.signal.aborted) this.#world.fail('G11', 'serve has ended, and was not told to')
      this.#world.count('serve ended')
    } catch (error) {
      this.#mustBeHonest(error)
    }
    this.#stop.abort(this.#enough)
    await observed
    await this.#replaced
  }

  #look(replacesLocker: boolean): void {
    const { nowMs, isStopping } = this.#world
    if (isStopping) this.#mustHaveLeader()
    if (isStopping || (nowMs >= this.#untilMs && !replacesLocker)) this.#stop.abort(this.#enough)
    else if (nowMs >= this.#untilMs) this.#replaced = this.#client.replaceLocker()
    else if (!this.#stop.signal.aborted)
      this.#client.process.setTimer(LOOK_EVERY_MS, () => this.#look(replacesLocker))
  }

  #mustBeHonest(error: unknown): void {
    if (error === this.#failure) this.#world.count('term failed')
    else if (this.#replaced !== undefined && isHoldfastError(error, 'CLOSED'))
      this.#world.count('serve closed')
    else if (isHoldfastError(error, 'BACKEND_UNAVAILABLE')) this.#world.count('first contact failed')
    else this.#world.fail('G11', `serve has failed with ${String((error as Error)?.stack ?? error)}`)
  }

  // --- terms -------------------------------------------------------------------------------------------------

  async #work(term: Term<'fenced'>): Promise<void> {
    const { index } = this.#client
    const world = this.#world
    const { running, lastTokens } = this.#terms
    const { id, fence } = term.lease
    const tracked = world.checks.trackedLease(term.lease)
    if (tracked === undefined) throw new Error('a lease that was not tracked')
    world.count('term')
    if (running.has(index)) world.fail('one-term', `client c${index} runs two terms at once`)
    if (fence.token <= (lastTokens.get(index) ?? 0n))
      world.fail(
        'one-term',
        `token ${fence.token} of client c${index} is not newer than that of its last term`,
      )
    running.set(index, { id, sinceMs: world.nowMs })
    lastTokens.set(index, fence.token)
    tracked.isBodyRunning = true
    try {
      if (world.nowMs >= this.#hastyUntilMs) await this.#lead(term, tracked)
    } finally {
      tracked.isBodyRunning = false
      running.delete(index)
    }
  }

  async #lead(term: Term<'fenced'>, tracked: TrackedLease): Promise<void> {
    const dice = this.#dice
    const { process, world } = this.#client
    const { ttlMs } = world.settings
    const untilMs = dice.chance(0.3) ? Number.POSITIVE_INFINITY : world.nowMs + dice.between(50, 2.5 * ttlMs)
    if (dice.chance(0.6)) await term.proclaim(term.lease.id).catch(() => world.count('proclaim failed'))
    // A write without an answer may yet land, over what this term writes after it: no guard tells two writes of one fence apart.
    let isSure = true
    while (!this.#mayBeTold(term, tracked) && world.nowMs < untilMs) {
      if (isSure) isSure = await this.#update(term, tracked)
      await process.sleep(dice.between(5, 600))
    }
    if (dice.chance(0.2)) term.resign()
    if (term.signal.aborted) await this.#windDown(term, tracked)
    if (dice.chance(0.05)) throw this.#failure
    term.signal.throwIfAborted()
  }

  /** Whether it was told to end. */
  #mayBeTold({ lease, signal }: Term<'fenced'>, tracked: TrackedLease): boolean {
    const world = this.#world
    if (lease.signal.aborted && !signal.aborted)
      world.fail('G3', `the lease ${lease.id} is lost, and its term was not told`)
    if (!signal.aborted && world.checks.believes(tracked)) this.#terms.ledAtMs = world.nowMs
    return signal.aborted
  }

  /** Whether its outcome is known. */
  async #update(term: Term<'fenced'>, tracked: TrackedLease): Promise<boolean> {
    const { fence } = term.lease
    const read = await this.#client.visit({ kind: 'read', fence })
    if (read === null) return true
    await this.#client.process.sleep(this.#dice.between(1, 200))
    if (this.#mayBeTold(term, tracked)) return true
    return (await this.#client.visit({ kind: 'write', fence, read })) !== null
  }

  async #windDown({ lease }: Term<'fenced'>, { abortedAtMs }: TrackedLease): Promise<void> {
    const { process, world } = this.#client
    const slowness = this.#dice.chance(0.15) ? 2 * world.settings.ttlMs : 1_000
    await process.sleep(this.#dice.between(1, slowness))
    const isStale = abortedAtMs !== undefined && world.nowMs - abortedAtMs > 10
    const finding = this.#checkHealth(0)
    if (isStale && !isHoldfastError(finding, 'LEASE_LOST'))
      world.fail('G3', `the term of ${lease.id} runs after its loss, and the health check finds nothing`)
    if (lease.state !== 'lost' && finding !== undefined)
      world.fail('G3', `the health check complains about a term that has its lease: ${String(finding)}`)
    if (isStale) world.count('stale term')
  }

  #checkHealth(graceMs: number): unknown {
    try {
      this.#election.checkHealth({ graceMs })
      return undefined
    } catch (error) {
      return error
    }
  }

  // --- observing ---------------------------------------------------------------------------------------------

  async #observe(): Promise<void> {
    const { process, world } = this.#client
    while (!this.#stop.signal.aborted && this.#replaced === undefined) {
      try {
        for await (const leader of this.#election.observe({ signal: this.#stop.signal })) this.#tell(leader)
        if (!this.#stop.signal.aborted && this.#replaced === undefined)
          world.fail('leader', 'an observation has ended by itself')
      } catch (error) {
        if (isHoldfastError(error, 'CLOSED') && this.#replaced !== undefined) return
        if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') || this.#told !== undefined)
          world.fail('leader', `an observation has failed with ${String((error as Error)?.stack ?? error)}`)
        await process.sleep(500)
      }
    }
  }

  #tell(leader: Leader<'fenced'> | null): void {
    const world = this.#world
    const before = this.#told?.leader
    world.note(this.#client.address, 'observes', leader === null ? 'no leader' : leader.id)
    world.count(leader === null ? 'observed no leader' : 'observed leader')
    this.#told = { leader, sinceMs: this.#told?.sinceMs ?? world.nowMs }
    if (leader === null) return
    if (!world.checks.wasGranted(leader.id, leader.token))
      world.fail('leader', `${leader.id} is shown as the leader, and never was one`)
    if (leader.value !== undefined && leader.value !== leader.id)
      world.fail('leader', `${leader.id} is shown with the value of ${String(leader.value)}`)
    if (leader.value !== undefined) world.count('observed value')
    if (before != null && before.id !== leader.id && before.token >= leader.token)
      world.fail('leader', `${leader.id} is shown after ${before.id}, which has a newer token`)
  }

  /** Called when the faults have been over for a while, and clients are about to stop. */
  #mustHaveLeader(): void {
    const world = this.#world
    if (this.#terms.ledAtMs < world.healedAtMs)
      world.fail('G10', 'there has been no leader since the faults were over')
    const [leading] = this.#terms.running.values()
    const settledMs = world.nowMs - OBSERVED_WITHIN_MS
    if (leading === undefined || leading.sinceMs > settledMs || world.healedAtMs > settledMs) return
    if (this.#told === undefined || this.#told.sinceMs > settledMs) return
    world.count('observer compared')
    if (this.#told.leader?.id !== leading.id)
      world.fail(
        'G10',
        `${leading.id} leads, and an observer still sees ${this.#told.leader?.id ?? 'no leader'}`,
      )
  }
}
