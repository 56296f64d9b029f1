/**
 * The floor of handing over: one token in a list. Redis itself keeps the line and pushes to the first in it, and there is no
 * time to live, no owner, no renewal and no token. `BLPOP` blocks its connection, so every waiter has one of its own.
 */
import type { Taker } from '../subject.ts'
import { ioredis6, type Opened } from './clients.ts'

export function tokenInAList(url: string, waiters: number): Taker {
  return {
    name: 'BLPOP floor',
    async openTaking() {
      const connections = await Promise.all(Array.from({ length: waiters }, () => ioredis6.open(url)))
      const filled = new Set<string>()
      return {
        async take(name, waiter) {
          const { client } = connections[waiter] as Opened<Commands>
          if (!filled.has(name)) {
            filled.add(name)
            await client.rpush(name, 'token')
          }
          await client.blpop(name, 0)
          return () => client.rpush(name, 'token')
        },
        async close() {
          for (const { close } of connections) close()
        },
      }
    },
  }
}

interface Commands {
  rpush(key: string, value: string): Promise<number>
  blpop(key: string, timeoutSeconds: number): Promise<unknown>
}
