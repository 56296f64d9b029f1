/**
 * `full`: the engine is full, and takes nothing more, when a client has read. Its lease ends, because it is stopped. Nobody else gets the
 * name before there is space again; from then on everything goes on as if nothing had happened.
 */
import { needFault } from './engines/engine.ts'
import type { Incident } from './incidents.ts'
import { overtaken, overtakeRepeatedly, overtaker, type PassOptions } from './overtaking.ts'
import type { Scenario } from './scenario.ts'

export function fullScenario({ seconds = 0, ttlMs = 2_000 }: PassOptions = {}): Scenario {
  return {
    name: 'full',
    clients: [overtaken, overtaker],
    ttlMs,
    fault: 'full',
    async play(stage) {
      const { crew, engine, say } = stage
      const { fill, isFree, makeSpace } = needFault(engine, 'full')
      let stop: Incident | null = null
      await overtakeRepeatedly(stage, seconds, {
        async strike() {
          const outage = crew.incidents.begin({ what: 'outage', how: await fill() })
          say(`${overtaken} has read; ${outage.how}`)
          stop = await crew.stop(overtaken)
          await crew.orFailure(isFree())
          say(`the lease of ${overtaken} has ended; there is space again for ${overtaker}`)
          await makeSpace()
          crew.incidents.end(outage)
        },
        async relieve() {
          if (stop !== null) crew.continue(stop)
        },
      })
    },
  }
}
