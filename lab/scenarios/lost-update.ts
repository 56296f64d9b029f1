/**
 * `lost-update`: clients take turns to read, think and write; every so often one of them is stopped for longer than its
 * lease lasts. Mostly it is one that has just read and not yet written; every third time it is one that waits.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { seededRandom } from '../../packages/holdfast/src/testing/seeded-random.ts'
import type { Crew } from './crew.ts'
import { nowMs } from './observer.ts'
import type { Scenario } from './scenario.ts'

export interface LostUpdateOptions {
  readonly seconds?: number
  readonly clients?: number
  readonly ttlMs?: number
  readonly mostThinkMs?: number
  readonly stopEveryMs?: number
  /** Decides who thinks for how long and who is stopped. Default: another one each time, which is said at the start. */
  readonly seed?: number
}

export function lostUpdateScenario(options: LostUpdateOptions = {}): Scenario {
  const { seconds = 30, clients = 5, ttlMs = 2_000, mostThinkMs = 2_000, stopEveryMs = 5_000 } = options
  const { seed = Date.now() % 2 ** 31 } = options
  return {
    name: 'lost-update',
    clients: Array.from({ length: clients }, (_, index) => `client ${index + 1}`),
    ttlMs,
    fault: null,
    async play({ crew, say }) {
      say(`seed ${seed}`)
      const random = seededRandom(seed)
      const startMs = nowMs()
      const endMs = startMs + seconds * 1_000
      const stopMs = 2 * ttlMs
      const wait = (ms: number) => crew.orFailure(sleep(Math.max(0, ms), undefined))
      // At least half of it, so that who has just read can be held before it writes.
      const thinkMs = () => (0.5 + random.fraction() / 2) * mostThinkMs
      let stops = 0
      const bustle = new Bustle(crew, thinkMs, () => nowMs() < endMs || stops === 0)
      for (;;) {
        const dueMs = startMs + (stops + 1) * stopEveryMs
        if (dueMs + stopMs > endMs) break
        await wait(dueMs - nowMs())
        const hasRead = (stops + 1) % 3 !== 0
        // However slow the machine is, one is stopped: otherwise nothing would be shown.
        const tooLate = stops === 0 ? never : wait(endMs - stopMs - nowMs())
        const client = hasRead
          ? await Promise.race([bustle.nextToRead(), tooLate])
          : bustle.waiting(random.fraction())
        if (client === undefined) break
        if (hasRead) crew.order(client, { kind: 'hold' })
        const stop = await crew.stop(client)
        // Its answer is there at once: nothing but the stop keeps it from writing.
        if (hasRead) crew.order(client, { kind: 'go' })
        stops++
        say(`stop ${stops}: ${client}, which ${hasRead ? 'has read' : 'waits'}`)
        await wait(stopMs)
        crew.continue(stop)
      }
      await wait(endMs - nowMs())
    },
  }
}

const never = new Promise<undefined>(() => {})

/** A client that is done starts its next round. */
class Bustle {
  readonly #crew: Crew
  readonly #thinking = new Set<string>()
  readonly #turns = new Map<string, number>()
  #read: (client: string) => void = () => {}

  constructor(crew: Crew, thinkMs: () => number, isOpen: () => boolean) {
    this.#crew = crew
    const begin = (client: string) => {
      const number = (this.#turns.get(client) ?? 0) + 1
      this.#turns.set(client, number)
      crew.order(client, { kind: 'turn', entry: `${client} #${number}`, thinkMs: thinkMs() })
    }
    crew.onReport((client, report) => {
      if (report.kind === 'read') {
        this.#thinking.add(client)
        this.#read(client)
      }
      if (report.kind !== 'done') return
      this.#thinking.delete(client)
      if (isOpen()) begin(client)
    })
    for (const client of crew.clients) begin(client)
  }

  nextToRead(): Promise<string> {
    const read = new Promise<string>((resolve) => {
      this.#read = resolve
    })
    return this.#crew.orFailure(read)
  }

  /** One of the clients that have not read. */
  waiting(fraction: number): string {
    const waiting = this.#crew.clients.filter((client) => !this.#thinking.has(client))
    return waiting[Math.floor(fraction * waiting.length)] ?? this.#crew.clients[0] ?? ''
  }
}
