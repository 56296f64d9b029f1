/**
 * `freeze`: the servers stand still for longer than a lease lasts, so no keep-alive is answered. The holder has to stop
 * believing by its own clock. When they go on, what was sent to them meanwhile must not bring the lease back.
 */
import { needFault } from './engines/engine.ts'
import { overtaken, overtakeRepeatedly, overtaker, type PassOptions } from './overtaking.ts'
import type { Scenario } from './scenario.ts'

export function freezeScenario({ seconds = 0, ttlMs = 2_000 }: PassOptions = {}): Scenario {
  return {
    name: 'freeze',
    clients: [overtaken, overtaker],
    ttlMs,
    fault: 'freeze',
    async play(stage) {
      const { crew, engine, say } = stage
      const { freeze, thaw } = needFault(engine, 'freeze')
      await overtakeRepeatedly(stage, seconds, {
        async strike() {
          const lost = crew.next(overtaken, 'lost')
          const outage = crew.incidents.begin({ what: 'outage', how: await freeze() })
          say(`${overtaken} has read; ${outage.how}`)
          await lost
          await thaw()
          crew.incidents.end(outage)
        },
      })
    },
  }
}
