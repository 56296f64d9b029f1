/**
 * `pooler`: everybody reaches the server through a pooler in transaction mode, which hands the same session of the server
 * to one client after the other. Whatever rests on a session is shared there by strangers, so locks that do must be
 * refused. Leases do not, and survive a pause as they do without the pooler.
 */
import { needFault } from './engines/engine.ts'
import type { PassOptions } from './overtaking.ts'
import { pauseScenario } from './pause.ts'
import type { Scenario } from './scenario.ts'

export function poolerScenario(options: PassOptions = {}): Scenario {
  const pause = pauseScenario(options)
  return {
    ...pause,
    name: 'pooler',
    fault: 'pooler',
    async play(stage) {
      const { mixesSessionsUp, refusal } = needFault(stage.engine, 'pooler')
      if (!(await mixesSessionsUp()))
        throw new Error('the pooler gave two clients sessions of their own, so this run would show nothing')
      stage.say('two clients were given the same session lock through the pooler')
      const refused = await refusal()
      if (refused === null) throw new Error('locks that rest on sessions were not refused behind the pooler')
      stage.say(`refused: ${refused}`)
      await pause.play(stage)
    },
  }
}
