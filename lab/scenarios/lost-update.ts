/**
 * `lost-update`: clients take turns to read, think and write; every so often one of them is stopped for longer than its
 * lease lasts. Mostly it is one that has read and not yet written; every third time it is one that waits.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Crew } from './crew.ts'
import { nowMs } from './observer.ts'
import type { Scenario } from './scenario.ts'

export interface LostUpdateOptions {
  readonly seconds?: number
  readonly clients?: number
  readonly ttlMs?: number
  readonly mostThinkMs?: number
  readonly stopEveryMs?: number
}

export function lostUpdateScenario(options: LostUpdateOptions = {}): Scenario {
  const { seconds = 30, clients = 5, ttlMs = 2_000, mostThinkMs = 2_000, stopEveryMs = 5_000 } = options
  return {
    name: 'lost-update',
    clients: Array.from({ length: clients }, (_, index) => `client ${index + 1}`),
    ttlMs,
    async play(crew, say) {
      const startMs = nowMs()
      const endMs = startMs + seconds * 1_000
      const stopMs = 2 * ttlMs
      const wait = (ms: number) => crew.orFailure(sleep(Math.max(0, ms)))
      const thinking = keepBusy(crew, mostThinkMs, () => nowMs() < endMs)
      for (let stops = 1; ; stops++) {
        const dueMs = startMs + stops * stopEveryMs
        if (dueMs + stopMs > endMs) break
        await wait(dueMs - nowMs())
        const client = choose(crew, thinking, stops % 3 !== 0)
        say(`stop ${stops}: ${client}, ${thinking.has(client) ? 'which has read' : 'which waits'}`)
        const stop = await crew.stop(client)
        await wait(stopMs)
        crew.continue(stop)
      }
      await wait(endMs - nowMs())
    },
  }
}

/** Whoever is done gets its next turn. Returns those who think right now, the latest last. */
function keepBusy(crew: Crew, mostThinkMs: number, isOpen: () => boolean): ReadonlySet<string> {
  const thinking = new Set<string>()
  const turns = new Map<string, number>()
  const begin = (client: string) => {
    const number = (turns.get(client) ?? 0) + 1
    turns.set(client, number)
    crew.order(client, { kind: 'turn', entry: `${client} #${number}`, thinkMs: Math.random() * mostThinkMs })
  }
  crew.onReport((client, report) => {
    if (report.kind === 'read') thinking.add(client)
    if (report.kind !== 'done') return
    thinking.delete(client)
    if (isOpen()) begin(client)
  })
  for (const client of crew.clients) begin(client)
  return thinking
}

function choose({ clients }: Crew, thinking: ReadonlySet<string>, preferThinking: boolean): string {
  const last = [...thinking].at(-1)
  if (preferThinking && last !== undefined) return last
  const others = clients.filter((client) => !thinking.has(client))
  return others[Math.floor(Math.random() * others.length)] ?? clients[0] ?? ''
}
