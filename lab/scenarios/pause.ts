/**
 * `pause`: a client is stopped when it has read under its lease; another takes over and writes; the first goes on, and
 * writes. Driven by what the clients report, not by how long something takes.
 */
import type { Scenario } from './scenario.ts'

export function pauseScenario({ ttlMs = 2_000 }: { readonly ttlMs?: number } = {}): Scenario {
  return {
    name: 'pause',
    clients: ['first', 'second'],
    ttlMs,
    async play(crew, say) {
      const read = crew.next('first', 'read')
      crew.order('first', { kind: 'turn', entry: 'first 1', thinkMs: null })
      await read
      const stop = await crew.stop('first')
      // Its answer is there at once: nothing but the stop keeps it from writing.
      crew.order('first', { kind: 'go' })
      say('first has read, and is stopped; second waits for its lease to end')
      const done = crew.next('second', 'done')
      crew.order('second', { kind: 'turn', entry: 'second 1', thinkMs: 0 })
      await done
      say('second is done; first goes on')
      const late = crew.next('first', 'done')
      crew.continue(stop)
      await late
    },
  }
}
