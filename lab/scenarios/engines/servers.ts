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
