/**
 * `frozen-member`: one member of a cluster stands still, to which a waiter and a watcher are connected. The holder's lease ends, because
 * it is stopped. The waiter must be granted, and the watcher must be told, although nobody closes their connections. A third process
 * on that member, which waits for other names, keeps its lease.
 */
import { needFault } from './engines/engine.ts'
import { overtaken, overtaker, type PassOptions, repeat } from './overtaking.ts'
import type { Scenario } from './scenario.ts'

export function frozenMemberScenario({ seconds = 0, ttlMs = 2_000 }: PassOptions = {}): Scenario {
  return {
    name: 'frozen-member',
    clients: [overtaken, overtaker],
    ttlMs,
    fault: 'frozenMember',
    async play({ crew, engine, say }) {
      const { waits, freeze, isTold, thaw } = needFault(engine, 'frozenMember')
      await repeat(seconds, async (number) => {
        const turn = (client: string, thinkMs: number | null) =>
          ({ kind: 'turn', entry: `${client} ${number}`, thinkMs }) as const
        await crew.ask(overtaken, turn(overtaken, null), 'read')
        const next = crew.next(overtaker, 'done')
        crew.order(overtaker, turn(overtaker, 0))
        await crew.orFailure(waits())
        say(`${overtaken} has read, and ${overtaker} waits; ${await freeze()}`)
        const stop = await crew.stop(overtaken)
        await next
        await crew.orFailure(isTold())
        say(`${overtaker} is done, and a watcher was told; ${overtaken} goes on`)
        const late = crew.next(overtaken, 'done')
        crew.order(overtaken, { kind: 'go' })
        crew.continue(stop)
        await late
        await thaw()
      })
    },
  }
}
