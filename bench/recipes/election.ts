/** How long there is no leader: after `kill -9` of the leader's process, and after it has resigned. */
import { type ChildProcess, fork } from 'node:child_process'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Locker, openLocker } from 'holdfast'
import { nowMs, type Said } from './election/candidate.ts'
import { distributionHeadings, distributionRow, type RecipeBench } from './recipe-bench.ts'

const KILLS = 50
/** Elections at once, so that fifty TTLs do not take fifty times as long. */
const ELECTIONS = 5
const RESIGNS = 50
const SHORTEST_TTL_MS = 1_000

export const bench: RecipeBench = {
  async run({ url }, progress) {
    await using locker = await openLocker(url, { require: 'fenced' })
    const { info } = locker
    const ttlMs = Math.max(SHORTEST_TTL_MS, info.ttlMs.min)
    const trips = new RoundTrips(locker)

    let killed = 0
    const takeOver = async (index: number) => {
      using election = new Candidates(locker, url, `killed/${index}`, ttlMs)
      await election.start(2)
      const times: number[] = []
      while (times.length < KILLS / ELECTIONS) {
        times.push(await election.killLeader())
        progress(`${++killed} of ${KILLS} leaders killed`)
        await election.start(1)
      }
      return times
    }
    const elections = Array.from({ length: ELECTIONS }, (_, index) => takeOver(index))
    const afterKill = (await Promise.all(elections)).flat()

    using election = new Candidates(locker, url, 'resigned', ttlMs)
    await election.start(2)
    const afterResign: number[] = []
    while (afterResign.length < RESIGNS) {
      afterResign.push(await election.letLeaderResign())
      progress(`${afterResign.length} of ${RESIGNS} leaders resigned`)
    }

    const longestTripMs = await trips.stop()
    // G10: the granted TTL is the one that was asked for, raised to a step of the engine.
    const grantedMs = Math.ceil(ttlMs / info.ttlMs.step) * info.ttlMs.step
    const limitMs = grantedMs + info.expirySlackMs(grantedMs) + 2 * longestTripMs
    const longestMs = Math.max(...afterKill)
    if (longestMs > limitMs)
      throw new Error(`G10: a take-over took ${longestMs.toFixed(0)} ms, more than ${limitMs.toFixed(0)} ms.`)
    return [
      {
        title: 'election, from the end of a leader to the next term, in milliseconds',
        rows: [
          distributionHeadings,
          distributionRow('kill -9', afterKill),
          distributionRow('resign', afterResign),
        ],
        remarks: [
          `TTL ${grantedMs} ms. All are within G10: ${limitMs.toFixed(0)} ms, which is the TTL, ${info.expirySlackMs(grantedMs)} ms of slack and two round trips (the longest meanwhile took ${longestTripMs.toFixed(1)} ms)`,
          `${ELECTIONS} elections at once, each with processes of its own; a resigned leader had ended its work before`,
        ],
      },
    ]
  },
}

/** How long a call takes, measured all along: on a busy machine also that takes longer. */
class RoundTrips {
  readonly #locker: Locker
  readonly #running: Promise<void>
  #isStopped = false
  #longestMs = 0

  constructor(locker: Locker) {
    this.#locker = locker
    this.#running = this.#run()
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      const fromMs = nowMs()
      await this.#locker.inspect('round-trip')
      this.#longestMs = Math.max(this.#longestMs, nowMs() - fromMs)
      await sleep(20)
    }
  }

  async stop(): Promise<number> {
    this.#isStopped = true
    await this.#running
    return this.#longestMs
  }
}

class Candidates implements Disposable {
  readonly #locker: Locker
  readonly #args: readonly string[]
  readonly #name: string
  readonly #processes = new Set<ChildProcess>()
  #count = 0
  #leader: ChildProcess | undefined
  #onLeads: (atMs: number) => void = () => {}
  #onEnded: (atMs: number) => void = () => {}
  #onFailure: (error: Error) => void = () => {}

  constructor(locker: Locker, url: string, name: string, ttlMs: number) {
    this.#locker = locker
    this.#name = name
    this.#args = [url, name, String(ttlMs)]
  }

  /** Returns when one leads and the others wait. */
  async start(count: number): Promise<void> {
    for (let started = 0; started < count; started++) await this.#startOne()
    await this.#settled()
  }

  #startOne(): Promise<void> {
    const program = join(import.meta.dirname, 'election', 'candidate.ts')
    const args = [...this.#args, `candidate-${++this.#count}`]
    const child = fork(program, args, {
      execArgv: [
        '--disable-warning=ExperimentalWarning',
        // The server of the benchmark keeps nothing on purpose.
        '--disable-warning=HOLDFAST_REDIS_PERSISTENCE',
      ],
    })
    this.#processes.add(child)
    return new Promise((resolve, reject) => {
      child.on('message', (said: Said) => {
        if (said.kind === 'ready') resolve()
        else if (said.kind === 'ended') this.#onEnded(said.atMs)
        else {
          this.#leader = child
          this.#onLeads(said.atMs)
        }
      })
      child.once('exit', (code, signal) => {
        // Those that are killed on purpose have been taken off the list.
        if (!this.#processes.delete(child)) return
        const error = new Error(`A candidate has ended (${signal ?? code}).`)
        reject(error)
        this.#onFailure(error)
      })
    })
  }

  async #settled(): Promise<void> {
    for (;;) {
      const state = await this.#locker.inspect(this.#name)
      if (state?.holders.length === 1 && state.waiters.length === this.#processes.size - 1) return
      await sleep(10)
    }
  }

  /** How long it took until another one led. */
  async killLeader(): Promise<number> {
    const leader = this.#leader
    if (leader === undefined) throw new Error('There is no leader.')
    this.#processes.delete(leader)
    const leads = this.#next()
    const killedAtMs = nowMs()
    leader.kill('SIGKILL')
    return (await leads) - killedAtMs
  }

  /** From the end of its work. */
  async letLeaderResign(): Promise<number> {
    const ended = new Promise<number>((resolve) => {
      this.#onEnded = resolve
    })
    const leads = this.#next()
    this.#leader?.send('resign')
    const tookMs = (await leads) - (await ended)
    await this.#settled()
    return tookMs
  }

  #next(): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#onLeads = resolve
      this.#onFailure = reject
    })
  }

  [Symbol.dispose](): void {
    const processes = [...this.#processes]
    this.#processes.clear()
    for (const child of processes) child.kill('SIGKILL')
  }
}
