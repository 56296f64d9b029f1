/**
 * Many waiters want one name, and each holds it for a moment. Whoever has released stands back until another has had it:
 * with those who poll, the same one would otherwise take it again and again before anybody else looks, and nothing would
 * be handed over.
 */
import { setTimeout as sleep, setImmediate as turnOfEventLoop } from 'node:timers/promises'
import { median, quantile } from './measure.ts'
import type { Contest, Taker, Taking } from './subject.ts'

export interface ContestSample {
  readonly perSecond: number
  /** From the call of release to the next waiter's having it; null if that has not happened. */
  readonly p50Ms: number | null
  readonly p99Ms: number | null
  /** How often a second somebody stopped waiting without having got it. */
  readonly gaveUpPerSecond: number
  /** How many of the waiters had it at least once. */
  readonly served: number
}

export interface ContestantResult extends ContestSample {
  readonly name: string
  /** Hand-overs a second compared with the first one: the median of what the rounds say, and their range. */
  readonly ratio: number
  readonly ratioLeast: number
  readonly ratioMost: number
  readonly rounds: readonly ContestSample[]
}

export interface ContestResult {
  readonly waiters: number
  readonly holdMs: number
  readonly floor: string
  readonly seconds: number
  readonly contestants: readonly ContestantResult[]
}

/** Some poll every quarter of a second and give up after two: they need more time than pairs do, and fewer rounds. */
const moreSeconds = 4
const fewerRounds = 0.6
const warmUpSeconds = 0.2
/** Who sleeps between two polls finds out only then that it is over. */
const stragglersMs = 300

export async function runContest(
  contest: Contest,
  effort: { readonly seconds: number; readonly rounds: number },
  progress: (what: string) => void,
): Promise<ContestResult> {
  const seconds = effort.seconds * moreSeconds
  const rounds = Math.ceil(effort.rounds * fewerRounds)
  const samples = new Map<Taker, ContestSample[]>(contest.takers.map((taker) => [taker, []]))
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? contest.takers : contest.takers.toReversed()
    for (const taker of order) {
      progress(`round ${round + 1} of ${rounds}, ${taker.name}`)
      samples.get(taker)?.push(await measureContest(contest, taker, seconds))
    }
  }
  const [floor = []] = samples.values()
  return {
    waiters: contest.waiters,
    holdMs: contest.holdMs,
    floor: contest.floor,
    seconds,
    contestants: Array.from(samples, ([{ name }, own]) => summarise(name, own, floor)),
  }
}

/** Everybody opens anew: the way to end waiters who cannot be cancelled is to close their connection. */
export async function measureContest(
  contest: Contest,
  taker: Taker,
  seconds: number,
): Promise<ContestSample> {
  const taking = await taker.openTaking()
  const turns = new Turns(contest, taker.name, taking, seconds)
  let running: Promise<unknown>
  try {
    running = Promise.all(Array.from({ length: contest.waiters }, (_, waiter) => turns.wait(waiter)))
    await Promise.race([running, sleep((Math.min(warmUpSeconds, seconds) + seconds) * 1_000)])
  } finally {
    turns.end()
    await taking.close()
  }
  await Promise.race([running, sleep(Math.min(stragglersMs, seconds * 1_000))])
  return turns.sample()
}

let contests = 0

class Turns {
  readonly #contest: Contest
  readonly #who: string
  readonly #taking: Taking
  readonly #seconds: number
  /** A name that is held when a round ends stays taken for a while, so each contest has its own. */
  readonly #resource = `bench/contest/${++contests}`
  readonly #beginMs: number
  readonly #served = new Set<number>()
  readonly #timesMs: number[] = []
  #isOver = false
  #isInside = false
  #releasedMs = 0
  #gaveUp = 0
  #another = Promise.withResolvers<void>()

  constructor(contest: Contest, who: string, taking: Taking, seconds: number) {
    this.#contest = contest
    this.#who = who
    this.#taking = taking
    this.#seconds = seconds
    this.#beginMs = performance.now() + Math.min(warmUpSeconds, seconds) * 1_000
  }

  async wait(waiter: number): Promise<void> {
    try {
      while (!this.#isOver) await this.#turn(waiter)
    } catch (error) {
      // The connection is closed while they wait, and then the errors are those of that.
      if (!this.#isOver) throw error
    }
  }

  async #turn(waiter: number): Promise<void> {
    const giveBack = await this.#taking.take(this.#resource, waiter)
    const nowMs = performance.now()
    const counts = nowMs >= this.#beginMs && !this.#isOver
    if (giveBack === null) {
      if (counts) this.#gaveUp++
      // Should it give up without asking anybody, the others must have their turn all the same.
      await turnOfEventLoop()
      return
    }
    if (this.#isInside) throw new Error(`${this.#who} let two in at once`)
    this.#isInside = true
    this.#another.resolve()
    if (counts) this.#served.add(waiter)
    if (counts && this.#releasedMs > 0) this.#timesMs.push(nowMs - this.#releasedMs)
    if (!this.#isOver) await sleep(this.#contest.holdMs)
    this.#isInside = false
    this.#another = Promise.withResolvers<void>()
    const { promise: anotherHasHadIt } = this.#another
    this.#releasedMs = performance.now()
    await giveBack()
    if (!this.#isOver) await anotherHasHadIt
  }

  /** Nothing counts from here on, and nobody begins to wait. */
  end(): void {
    this.#isOver = true
    this.#another.resolve()
  }

  sample(): ContestSample {
    const sorted = this.#timesMs.toSorted((a, b) => a - b)
    const hasSome = sorted.length > 0
    return {
      perSecond: sorted.length / this.#seconds,
      p50Ms: hasSome ? quantile(sorted, 0.5) : null,
      p99Ms: hasSome ? quantile(sorted, 0.99) : null,
      gaveUpPerSecond: this.#gaveUp / this.#seconds,
      served: this.#served.size,
    }
  }
}

function summarise(
  name: string,
  rounds: readonly ContestSample[],
  floor: readonly ContestSample[],
): ContestantResult {
  const ratios = rounds.map(({ perSecond }, round) => perSecond / (floor[round]?.perSecond ?? Number.NaN))
  const timed = rounds.filter((sample) => sample.p50Ms !== null)
  const middle = (pick: (sample: ContestSample) => number) => median(rounds.map(pick))
  return {
    name,
    perSecond: middle((sample) => sample.perSecond),
    p50Ms: timed.length === 0 ? null : median(timed.map((sample) => sample.p50Ms ?? 0)),
    p99Ms: timed.length === 0 ? null : median(timed.map((sample) => sample.p99Ms ?? 0)),
    gaveUpPerSecond: middle((sample) => sample.gaveUpPerSecond),
    served: Math.min(...rounds.map((sample) => sample.served)),
    ratio: median(ratios),
    ratioLeast: Math.min(...ratios),
    ratioMost: Math.max(...ratios),
    rounds,
  }
}
