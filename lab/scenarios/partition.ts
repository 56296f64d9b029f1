/**
 * `partition`: a client is cut off from the engine, and from nothing else, for longer than its lease lasts. It has to stop
 * believing before its successor gets the name. When it is back, what it sent meanwhile may land late, and it writes what
 * it had read: all of that in the middle of its successor's turn, which must neither lose its lease nor its update.
 */
import { needFault, type Way, ways } from './engines/engine.ts'
import { overtaken, overtaker, type PassOptions, repeat } from './overtaking.ts'
import type { Scenario, Stage } from './scenario.ts'

export function partitionScenario({ seconds = 0, ttlMs = 2_000 }: PassOptions = {}): Scenario {
  return {
    name: 'partition',
    clients: [overtaken, overtaker],
    ttlMs,
    fault: 'partition',
    play: (stage) =>
      repeat(seconds, async (number) => {
        for (const way of ways) await cutOffOnce(stage, way, number)
      }),
  }
}

async function cutOffOnce({ crew, engine, say }: Stage, way: Way, number: number): Promise<void> {
  const { cutOff, heal } = needFault(engine, 'partition')
  const turn = (client: string) =>
    ({ kind: 'turn', entry: `${client} ${number} ${way}`, thinkMs: null }) as const
  await crew.ask(overtaken, turn(overtaken), 'read')
  const what = way === 'one-way' ? 'deaf' : 'cut-off'
  const cut = crew.incidents.begin({ what, client: overtaken, how: `cut off (${way})` })
  cutOff(overtaken, way)
  say(`${overtaken} has read, and is cut off (${way}); ${overtaker} waits for its lease to end`)
  await crew.ask(overtaker, turn(overtaker), 'read')
  heal(overtaken)
  crew.incidents.end(cut)
  say(`${overtaker} has read; ${overtaken} is back, and writes`)
  await crew.ask(overtaken, { kind: 'go' }, 'done')
  await crew.ask(overtaker, { kind: 'go' }, 'done')
}
