/**
 * A real Redis server, with several backends on it as if in several processes. Clients live on a fake clock, and the
 * server's clock is moved along with it (see lab/faults), so that a TTL passes in milliseconds.
 */
import assert from 'node:assert/strict'
import { createClock } from 'holdfast-lab/faults'
import {
  type Cluster,
  connectRedis,
  redisCall,
  type Server,
  startRedis,
  startRedisCluster,
} from 'holdfast-lab/servers'
import { systemRandom } from '../../src/base/ids.ts'
import { openRedis, type RedisOptions } from '../../src/engines/redis/locks/assemble.ts'
import type { Backend, Fencing } from '../../src/spi.ts'
import { Clients } from '../../src/testing/conformance/clients.ts'
import type { World } from '../../src/testing/describe-backend.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'
import type { ClientLibrary, OpenedClient } from '../redis/clients.ts'
import { ClusterBus } from './cluster-bus.ts'

export interface RedisStageOptions {
  readonly library: ClientLibrary
  readonly isCluster?: boolean
  readonly backend?: Omit<RedisOptions, 'client'>
}

/** Nothing is random here, so that two runs of one case do the same number of things. */
const evenRandom = { id: () => systemRandom.id(), fraction: () => 0.5 }

/** One token counts one microsecond. */
const MICROSECOND_MS = 0.001

/**
 * Scripts of all clients, one after the other, each in a microsecond of its own. Tokens of names in different slots of a
 * Cluster are ordered by the clocks of their nodes, and no clock stands still.
 */
class OneByOne {
  readonly #clock: Pick<ReturnType<typeof createClock>, 'step'>
  #last: Promise<unknown> = Promise.resolve()

  constructor(clock: Pick<ReturnType<typeof createClock>, 'step'>) {
    this.#clock = clock
  }

  /** Waits until everything that was sent before has been answered. */
  async drained(): Promise<void> {
    for (let last: unknown; last !== this.#last; ) {
      last = this.#last
      await last
    }
  }

  client<C extends object>(client: C): C {
    return new Proxy(client, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target)
        if (typeof value !== 'function') return value
        // node-redis answers through a copy of the client.
        if (key === 'withTypeMapping') return (...args: unknown[]) => this.client(value.apply(target, args))
        if (key !== 'evalsha' && key !== 'eval' && key !== 'sendCommand') return value.bind(target)
        return (...args: unknown[]) => this.#inTurn(() => value.apply(target, args))
      },
    })
  }

  #inTurn(send: () => Promise<unknown>): Promise<unknown> {
    const answer = this.#last.then(() => {
      this.#clock.step(MICROSECOND_MS)
      return send()
    })
    this.#last = answer.catch(() => {})
    return answer
  }
}

const TTL_MS = 1_000
const STEP_MS = TTL_MS / 10

/** The servers of one test file; every case gets a world on them that is empty. */
export class RedisStage {
  readonly #options: RedisStageOptions
  readonly #shim = createClock()
  #members: readonly Server[] = []
  #bus: ClusterBus | undefined
  #stop: () => Promise<void> = async () => {}

  constructor(options: RedisStageOptions) {
    this.#options = options
  }

  async start(): Promise<void> {
    const clock = this.#shim
    const started: Server | Cluster = this.#options.isCluster
      ? // Its members judge each other by the clock that is moved here.
        await startRedisCluster({ clock, settings: { 'cluster-node-timeout': '3600000' } })
      : await startRedis({ clock })
    this.#members = 'members' in started ? started.members : [started]
    this.#stop = () => started.stop()
    if (this.#options.isCluster) this.#bus = await ClusterBus.listen(this.#members)
    // It moves with the clients' clock alone, so nothing depends on how fast this machine is.
    clock.freeze()
  }

  async stop(): Promise<void> {
    this.#bus?.close()
    await this.#stop()
  }

  async world(): Promise<World> {
    const { library, isCluster = false, backend } = this.#options
    const members = this.#members
    const shim = this.#shim
    const bus = this.#bus
    const urls = members.map(({ host, port }) => `redis://${host}:${port}`)
    const connect = () => Promise.all(members.map(connectRedis))
    let wires = await connect()
    const everywhere = (...command: string[]) => Promise.all(wires.map((wire) => wire.call(...command)))
    await everywhere('FLUSHALL')

    const clock = createFakeClock()
    const oneByOne = new OneByOne(shim)
    const passTime = async (ms: number) => {
      let leftMs = ms
      // Messages take some milliseconds from node to node: what was sent arrives before its time is over.
      if (ms >= STEP_MS) await bus?.hasPassedOn()
      do {
        const stepMs = Math.min(leftMs, STEP_MS)
        shim.step(stepMs)
        await clock.advance(stepMs)
        // Everything that was sent is processed, answered and heard.
        // In the end they must have arrived.
        if (leftMs <= stepMs) await bus?.hasPassedOn()
        for (let round = 0; round < 3; round++) {
          await everywhere('PING')
          await oneByOne.drained()
          await clock.settle()
        }
        leftMs -= stepMs
      } while (leftMs > 0)
    }

    const opened: OpenedClient[] = []
    const openClient = () => (isCluster ? library.openCluster(urls) : library.open(urls[0] ?? ''))
    let next: OpenedClient | undefined
    const clients = new Clients(clock, (options, clock) => {
      assert(next !== undefined)
      opened.push(next)
      const { client } = next
      return openRedis({
        client: isCluster ? oneByOne.client(client) : client,
        clock,
        random: evenRandom,
        pollMs: 20,
        // A client of a Cluster does not tell its address, so tokens need an issuer.
        ...(isCluster && { issuer: `cluster/${options.namespace ?? 'default'}` }),
        ...backend,
        ...options,
      }) as Backend<Fencing> as Backend<'fenced'>
    })
    const restart = async () => {
      for (const wire of wires) wire.close()
      for (const { close } of opened) close()
      for (const member of members) await member.kill()
      await Promise.all(members.map((member) => member.restart()))
      wires = await connect()
      await passTime(STEP_MS)
    }
    return {
      clock,
      passTime,
      ttlMs: TTL_MS,
      resolutionMs: 5,
      async client(options) {
        next = await openClient()
        return clients.add(options)
      },
      delayAnswers: (ms) => clients.delayAnswers(ms),
      async deleteName(name) {
        const lock = `holdfast:default:{${name}}`
        for (const [index, wire] of wires.entries()) {
          if (isCluster && !(await ownsSlot(members[index], lock))) continue
          await wire.call('DEL', lock, `${lock}:s`, `${lock}:q`, `${lock}:h`)
        }
      },
      ...(!isCluster && { restart }),
      async countCommands() {
        const reports = await everywhere('INFO', 'commandstats')
        return reports.reduce<number>((sum, report) => sum + commandsOf(String(report)), 0)
      },
      async countConnections() {
        const reports = await everywhere('INFO', 'clients')
        return reports.reduce<number>((sum, report) => sum + connectionsOf(String(report)), 0)
      },
      async close() {
        await clients.close()
        for (const { close } of opened) close()
        for (const wire of wires) wire.close()
      },
    }
  }
}

/** Those of the harness itself do not count, and neither do those by which connections are made. */
function commandsOf(report: string): number {
  let sum = 0
  for (const [, command, calls] of report.matchAll(/^cmdstat_([^:|]+)[^:]*:calls=(\d+)/gm)) {
    if (/^(ping|info|hello|client|cluster|command|subscribe)$/.test(command ?? '')) continue
    sum += Number(calls)
  }
  return sum
}

function connectionsOf(report: string): number {
  return Number(/^connected_clients:(\d+)/m.exec(report)?.[1] ?? Number.NaN)
}

async function ownsSlot(member: Server | undefined, key: string): Promise<boolean> {
  assert(member !== undefined)
  const reply = await redisCall(member, 'GET', key).catch((error: unknown) => error)
  return !(reply instanceof Error && reply.message.startsWith('MOVED'))
}
