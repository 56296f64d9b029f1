/** Worlds for `describeGuard` in which the resource is Redis. */
import type { Cluster } from 'holdfast-lab/servers'
import { type RedisGuard, type RedisTx, redisGuard } from '../../src/engines/redis/guard/redis-guard.ts'
import type { GuardWorld } from '../../src/testing/describe-guard.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'
import type { OpenedClient } from './clients.ts'

let worlds = 0

export async function redisGuardWorld(connect: () => Promise<OpenedClient>): Promise<GuardWorld<RedisTx>> {
  const clock = createFakeClock()
  const tag = `world-${++worlds}`
  const key = (name: string) => `{${tag}}:${name}`
  const opened = [await connect()]
  const newest = () => (opened.at(-1) as OpenedClient).client
  const looking = redisGuard({ client: newest(), tag })
  return {
    guard: async (options) => redisGuard({ ...options, client: newest(), tag, clock }),
    read: async (tx, name) => (await tx.get(key(name))) ?? undefined,
    write: async (tx, name, value) => tx.set(key(name), value),
    stored: (name) => looking.transaction(async (tx) => (await tx.get(key(name))) ?? undefined),
    transaction: (guard, body) => (guard as RedisGuard).transaction(body),
    outsideTransaction: (guard) => (guard as RedisGuard).transaction((tx) => tx),
    passTime: (ms) => clock.advance(ms),
    async reopen() {
      opened.push(await connect())
    },
    async close() {
      for (const each of opened) each.close()
    },
  }
}

export function clusterUrls({ members }: Cluster): readonly string[] {
  return members.map(({ host, port }) => `redis://${host}:${port}`)
}
