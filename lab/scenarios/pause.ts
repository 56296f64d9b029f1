/** `pause`: a client is stopped between its read and its write, for longer than its lease lasts. */
import type { Incident } from './incidents.ts'
import { overtaken, overtakeRepeatedly, overtaker, type PassOptions } from './overtaking.ts'
import type { Scenario } from './scenario.ts'

export function pauseScenario({ seconds = 0, ttlMs = 2_000 }: PassOptions = {}): Scenario {
  return {
    name: 'pause',
    clients: [overtaken, overtaker],
    ttlMs,
    fault: null,
    async play(stage) {
      const { crew, say } = stage
      let stop: Incident | null = null
      await overtakeRepeatedly(stage, seconds, {
        async strike() {
          stop = await crew.stop(overtaken)
          say(`${overtaken} has read, and is stopped; ${overtaker} waits for its lease to end`)
        },
        async relieve() {
          if (stop !== null) crew.continue(stop)
        },
      })
    },
  }
}
