/**
 * `failover`: the primary dies before its replica has the grant, and that replica is promoted. It gives the name to the
 * next one, while the holder goes on believing until its next keep-alive.
 */
import { needFault } from './engines/engine.ts'
import { nowMs } from './observer.ts'
import { overtaken, overtakeRepeatedly, overtaker, type PassOptions } from './overtaking.ts'
import type { Scenario } from './scenario.ts'

export function failoverScenario({ seconds = 0, ttlMs = 15_000 }: PassOptions = {}): Scenario {
  return {
    name: 'failover',
    clients: [overtaken, overtaker],
    ttlMs,
    fault: 'failOver',
    async play(stage) {
      const { holdBack, failOver } = needFault(stage.engine, 'failOver')
      await overtakeRepeatedly(stage, seconds, {
        prepare: holdBack,
        async strike() {
          const from = nowMs()
          const how = await failOver()
          stage.crew.incidents.add(how, from)
          stage.say(`${overtaken} has read; ${how}`)
        },
      })
    },
  }
}
