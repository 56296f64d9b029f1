/** How long it takes until all partitions are shared evenly again when a member joins, leaves or crashes, and what moves. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Calls, Order, Report } from './partitions/member.ts'
import type { RecipeBench } from './recipe-bench.ts'

const MEMBERS = 10
const COUNT = 256
const TTL_MS = 5_000
const ROUNDS = 3
const LIMIT_MS = 60_000

interface Member {
  readonly process: ChildProcess
  readonly has: Set<number>
}

interface Change {
  readonly ms: number
  readonly moved: number
  readonly lists: number
  readonly tries: number
}

class Crowd {
  readonly #url: string
  readonly living: Member[] = []
  #moved = 0
  #onReport: () => void = () => {}

  constructor(url: string) {
    this.#url = url
  }

  async start(): Promise<Member> {
    const script = join(import.meta.dirname, 'partitions/member.ts')
    const child = fork(script, [this.#url, String(COUNT), String(TTL_MS)], {
      execArgv: ['--disable-warning=ExperimentalWarning'],
    })
    const member: Member = { process: child, has: new Set() }
    const ready = Promise.withResolvers<void>()
    child.on('exit', (code) => ready.reject(new Error(`A member ended with ${code}.`)))
    child.on('message', (report: Report) => {
      if (report.kind === 'ready') ready.resolve()
      else if (report.kind === 'assigned') member.has.add(report.partition)
      else if (report.kind === 'revoked') {
        member.has.delete(report.partition)
        if (report.reason === 'moved') this.#moved++
      }
      this.#onReport()
    })
    await ready.promise
    return member
  }

  order({ process }: Member, order: Order): void {
    process.send(order)
  }

  async measure(change: () => void): Promise<Change> {
    const before = await this.#calls()
    this.#moved = 0
    const sinceMs = performance.now()
    change()
    await this.shared()
    const ms = performance.now() - sinceMs
    // Requests of a member that leaves are not counted.
    const after = await this.#calls()
    const by = (what: keyof Calls) =>
      this.living.reduce(
        (sum, each) => sum + (after.get(each)?.[what] ?? 0) - (before.get(each)?.[what] ?? 0),
        0,
      )
    return { ms, moved: this.#moved, lists: by('lists'), tries: by('tries') }
  }

  /** Every partition has one member, and all members have as many, give or take one. */
  shared(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const sizes = () => this.living.map(({ has }) => has.size)
    const late = setTimeout(() => reject(new Error(`Not shared in time: ${sizes()}`)), LIMIT_MS)
    this.#onReport = () => {
      const isFull = sizes().reduce((sum, size) => sum + size, 0) === COUNT
      if (isFull && Math.max(...sizes()) - Math.min(...sizes()) <= 1) resolve()
    }
    this.#onReport()
    return promise.finally(() => clearTimeout(late))
  }

  async #calls(): Promise<Map<Member, Calls>> {
    const asked = this.living.map(async (member): Promise<[Member, Calls]> => {
      const answer = new Promise<Calls>((resolve) => {
        const onMessage = (report: Report) => {
          if (report.kind !== 'calls') return
          member.process.off('message', onMessage)
          resolve(report)
        }
        member.process.on('message', onMessage)
      })
      this.order(member, 'calls')
      return [member, await answer]
    })
    return new Map(await Promise.all(asked))
  }
}

export const bench: RecipeBench = {
  async run({ url }, progress) {
    const crowd = new Crowd(url)
    const changes: Record<'join' | 'leave' | 'crash', Change[]> = { join: [], leave: [], crash: [] }
    try {
      progress(`${MEMBERS} members start`)
      const started = await Promise.all(Array.from({ length: MEMBERS }, () => crowd.start()))
      for (const member of started) crowd.order(member, 'join')
      crowd.living.push(...started)
      await crowd.shared()
      for (let round = 1; round <= ROUNDS; round++)
        for (const how of ['leave', 'crash'] as const) {
          progress(`a ${how} and a join, ${round} of ${ROUNDS}`)
          const [gone] = crowd.living.splice(0, 1)
          if (gone === undefined) throw new Error('no member is left')
          const exit = once(gone.process, 'exit')
          changes[how].push(
            await crowd.measure(() => {
              if (how === 'crash') gone.process.kill('SIGKILL')
              else crowd.order(gone, 'leave')
            }),
          )
          await exit
          const next = await crowd.start()
          changes.join.push(
            await crowd.measure(() => {
              crowd.living.push(next)
              crowd.order(next, 'join')
            }),
          )
        }
      await leaveAll(crowd)
    } finally {
      for (const { process } of crowd.living) process.kill('SIGKILL')
    }
    mustBeFewest(changes)
    const rows = Object.entries(changes).map(([how, each]) => [
      how,
      String(each.length),
      spread(each.map(({ ms }) => ms)),
      spread(each.map(({ moved }) => moved)),
      spread(each.map(({ lists }) => lists)),
      spread(each.map(({ tries }) => tries)),
    ])
    return [
      {
        title: `${MEMBERS} members and ${COUNT} partitions, until they are shared evenly again`,
        rows: [['a member’s', 'times', 'ms', 'moved', 'lists', 'tries to acquire'], ...rows],
        remarks: [
          'Median, and least to most. Each member is a process of its own',
          `The TTL is ${TTL_MS} ms: a crash is noticed when it has run out`,
          'Lists and tries are those of all members together, with the looks of every third of a TTL',
        ],
      },
    ]
  },
}

async function leaveAll(crowd: Crowd): Promise<void> {
  await Promise.all(
    crowd.living.splice(0).map((member) => {
      const exit = once(member.process, 'exit')
      crowd.order(member, 'leave')
      return exit
    }),
  )
}

/** Nothing has to move when a member goes. When one comes, it needs its share, and no more. */
function mustBeFewest({ join, leave, crash }: Record<'join' | 'leave' | 'crash', Change[]>): void {
  const most = Math.max(...[...leave, ...crash].map(({ moved }) => moved))
  if (most > 0) throw new Error(`${most} partitions moved when a member left or died, and none has to.`)
  const share = Math.ceil(COUNT / MEMBERS)
  const moved = Math.max(...join.map((each) => each.moved))
  if (moved > share)
    throw new Error(`${moved} partitions moved when a member joined, and its share is ${share}.`)
}

function spread(samples: readonly number[]): string {
  const sorted = samples.map(Math.round).sort((a, b) => a - b)
  return `${sorted[Math.floor(sorted.length / 2)]} (${sorted[0]}–${sorted.at(-1)})`
}
