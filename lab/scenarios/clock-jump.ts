/**
 * `clock-jump`: the clock that the engine counts leases by is set ahead while one is held. The engine gives the name away
 * at once, and its holder, which has done nothing wrong, goes on believing until its next keep-alive. The TTL is long, so
 * that this keep-alive is far away.
 */
import { needFault } from './engines/engine.ts'
import { nowMs } from './observer.ts'
import { overtaken, overtakeRepeatedly, overtaker, type PassOptions } from './overtaking.ts'
import type { Scenario } from './scenario.ts'

export function clockJumpScenario({ seconds = 0, ttlMs = 60_000 }: PassOptions = {}): Scenario {
  return {
    name: 'clock-jump',
    clients: [overtaken, overtaker],
    ttlMs,
    fault: 'clock',
    async play(stage) {
      const clock = needFault(stage.engine, 'clock')
      await overtakeRepeatedly(stage, seconds, {
        everyMs: 5_000,
        async strike() {
          const from = nowMs()
          const how = clock.step(2 * ttlMs)
          stage.crew.incidents.add(how, from)
          stage.say(`${overtaken} has read; ${how}`)
        },
      })
    },
  }
}

/**
 * `clock-jump-one`: the clock of one server is set ahead, of those that a client's majority cannot do without. The other
 * client makes its majority of that server and of those that the first has not reached.
 */
export function clockJumpOneScenario({ seconds = 0, ttlMs = 60_000 }: PassOptions = {}): Scenario {
  return {
    name: 'clock-jump-one',
    clients: [overtaken, overtaker],
    ttlMs,
    fault: 'oneClock',
    async play(stage) {
      const { part, step, rejoin } = needFault(stage.engine, 'oneClock')
      await overtakeRepeatedly(stage, seconds, {
        everyMs: 5_000,
        async prepare() {
          part(overtaken)
        },
        async strike() {
          const from = nowMs()
          const how = step(2 * ttlMs)
          stage.crew.incidents.add(how, from)
          stage.say(`${overtaken} has read, and has reached a majority only; ${how}`)
        },
        async relieve() {
          rejoin(overtaken)
        },
      })
    },
  }
}
