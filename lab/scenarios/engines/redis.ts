/** One Redis server with clock-backed tokens; for a fail-over a pair of them. */
import { redis } from '../../../packages/holdfast/src/engines/redis/locks/index.ts'
import { createClock } from '../../faults/index.ts'
import { startRedis } from '../../servers/index.ts'
import { Doors } from './doors.ts'
import type { Addresses, Engine, RunningEngine, StartOptions } from './engine.ts'
import { connect, urlOf } from './redis-client.ts'
import { RedisPair } from './redis-pair.ts'
import { freezing, stepping } from './servers.ts'

export const redisEngine: Engine = {
  name: 'redis',
  resource: 'redis',
  protection: 'guard',
  faults: ['clock', 'partition', 'freeze', 'failOver'],
  assumes: {
    clock: /wall clock is not set forward/,
    failOver: /promotion of a replica that has not caught up/,
  },
  async start(options) {
    return options.fault === 'failOver' ? startPair(options) : startOne(options)
  },
  async open([url = '']: Addresses) {
    const client = await connect(url)
    // Not the address: that is another one for each client, and all of them speak of the same tokens.
    const backend = redis({ client, fencing: 'clock-backed', issuer: 'lab' })
    return { backend, close: async () => client.disconnect() }
  },
}

async function startOne({ clients, fault }: StartOptions): Promise<RunningEngine> {
  await using stack = new AsyncDisposableStack()
  const clock = fault === 'clock' ? createClock() : null
  const server = stack.use(await startRedis(clock === null ? {} : { clock }))
  const doors = fault === 'partition' ? stack.use(await Doors.open(clients, [server], urlOf)) : null
  const owned = stack.move()
  return {
    addresses: [server.url],
    addressesFor: (client) => doors?.addressesFor(client) ?? [server.url],
    faults: {
      ...(clock && { clock: stepping(clock, 'the server') }),
      ...(doors && { partition: doors.partition }),
      freeze: freezing([server], 'the server'),
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

async function startPair({ clients }: StartOptions): Promise<RunningEngine> {
  await using stack = new AsyncDisposableStack()
  const pair = stack.use(await RedisPair.start())
  const doors = stack.use(await Doors.open([...clients, 'observer'], [pair.target], urlOf))
  const owned = stack.move()
  return {
    addresses: doors.addressesFor('observer'),
    addressesFor: (client) => doors.addressesFor(client),
    faults: { failOver: pair.failOver },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}
