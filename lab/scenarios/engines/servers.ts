/** Faults that every server which is a process of ours can be given. */
import type { Clock } from '../../faults/index.ts'
import type { Server } from '../../servers/index.ts'
import type { Faults } from './engine.ts'

/** `whose`: the servers that live by this clock, for the report. */
export function stepping(clock: Clock, whose: string): Faults['clock'] {
  return {
    step(ms) {
      clock.step(ms)
      return `the clock of ${whose} was set ${ms / 1_000} s ahead`
    },
  }
}

export function freezing(servers: readonly Server[], which: string): Faults['freeze'] {
  return {
    async freeze() {
      await Promise.all(servers.map((server) => server.pause()))
      return `${which} stood still`
    },
    async thaw() {
      await Promise.all(servers.map((server) => server.resume()))
    },
  }
}

/** The old leader comes back before the next round: until then a client that knows no other member cannot renew. */
export function failingOver(cluster: { leader(): Promise<Server> }): Faults['failOver'] {
  let killed: Server | undefined
  return {
    async holdBack() {
      await killed?.restart()
      killed = undefined
    },
    async failOver() {
      killed = await cluster.leader()
      await killed.kill()
      await cluster.leader()
      return 'the leader was killed, and another member was elected'
    },
  }
}
