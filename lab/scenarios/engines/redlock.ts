/** Five Redis servers that know nothing of each other. No tokens, so no guard: the resource has to compare by itself. */
import { redlock } from '../../../packages/holdfast/src/engines/redis/redlock/index.ts'
import { type Clock, createClock } from '../../faults/index.ts'
import { startTogether } from '../../servers/cluster.ts'
import { type Server, startRedis } from '../../servers/index.ts'
import { Doors } from './doors.ts'
import type { Addresses, Engine, Faults } from './engine.ts'
import { connect, urlOf } from './redis-client.ts'
import { freezing, stepping } from './servers.ts'

const nodes = 5
const majority = 3
const longestNodeTimeoutMs = 250
const steppedClock = /a wall clock that is not stepped/
/** In the majority of a client that reaches only the first three, and of a client that finds the first two taken. */
const shared = majority - 1

export const redlockEngine: Engine = {
  name: 'redlock',
  resource: 'sqlite',
  protection: 'compare-and-set',
  faults: ['clock', 'oneClock', 'partition', 'freeze'],
  assumes: { clock: steppedClock, oneClock: steppedClock },
  async start({ clients, fault }) {
    await using stack = new AsyncDisposableStack()
    const clock = fault === 'clock' || fault === 'oneClock' ? createClock() : null
    const servers = await startTogether(Array.from({ length: nodes }, (_, index) => startNode(index)))
    for (const server of servers) stack.use(server)
    const urls = servers.map(({ url }) => url)
    const hasDoors = fault === 'partition' || fault === 'oneClock'
    const doors = hasDoors ? stack.use(await Doors.open(clients, servers, urlOf)) : null
    const owned = stack.move()
    return {
      addresses: urls,
      addressesFor: (client) => doors?.addressesFor(client) ?? urls,
      faults: {
        ...(clock && fault === 'clock' && { clock: stepping(clock, `${majority} of ${nodes} nodes`) }),
        ...(clock && doors && { oneClock: oneClock(clock, doors) }),
        ...(doors && { partition: doors.partition }),
        freeze: freezing(servers.slice(0, majority), `${majority} of ${nodes} nodes`),
      },
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    }

    function startNode(index: number): Promise<Server> {
      return startRedis({
        name: `redis-${index + 1}`,
        // Otherwise their votes would not count before they have run for as long as a lease may last.
        persistence: 'every-write',
        ...(clock !== null && (fault === 'clock' ? index < majority : index === shared) && { clock }),
      })
    }
  },
  async open(urls: Addresses, ttlMs: number) {
    const clients = await Promise.all(urls.map(connect))
    const backend = redlock({
      clients,
      persistence: 'every-write',
      // All nodes share one busy machine here with everybody who asks them.
      nodeTimeoutMs: Math.min(longestNodeTimeoutMs, Math.floor(ttlMs / 4)),
    })
    return {
      backend,
      close: async () => {
        for (const client of clients) client.disconnect()
      },
    }
  },
}

function oneClock(clock: Clock, doors: Doors): Faults['oneClock'] {
  const { step } = stepping(clock, `1 of ${nodes} nodes`)
  return {
    part: (client) => doors.cutOffFrom(client, (index) => index > shared),
    step,
    rejoin: (client) => doors.partition.heal(client),
  }
}
