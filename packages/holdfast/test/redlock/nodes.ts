/** Nodes for tests of Redlock: real servers, each behind a proxy, on a clock of their own. */
import { createClock, type FaultyProxy, type Clock as ServerClock, startProxy } from 'holdfast-lab/faults'
import { redisCall, type Server, startRedisNodes } from 'holdfast-lab/servers'
import { type RedlockOptions, redlock } from '../../src/engines/redis/redlock/index.ts'
import type { Backend } from '../../src/spi.ts'
import { type ClientLibrary, libraries, type OpenedClient } from '../redis/clients.ts'

export interface Nodes extends AsyncDisposable {
  readonly servers: readonly Server[]
  readonly proxies: readonly FaultyProxy[]
  /** Of all servers. */
  readonly clock: ServerClock
  /** A backend with a client of its own for every node. */
  backend(options?: BackendOptions): Promise<Backend<'unfenced'>>
  /** Answers of every node to this command. */
  call(...command: readonly (string | number)[]): Promise<unknown[]>
  /** When it is over, everything that the clients have sent before has been answered, but for these nodes. */
  flush(frozen?: readonly number[]): Promise<void>
  /** Ends the clients that were made here, and all faults. */
  endClients(): Promise<void>
  stop(): Promise<void>
}

export interface BackendOptions extends Omit<RedlockOptions, 'clients'> {
  readonly library?: ClientLibrary
  /** Past the proxies: for tests that break nothing. */
  readonly direct?: boolean
  /** Only the first ones. */
  readonly nodes?: number
}

export interface NodesOptions {
  readonly count?: number
  /** Their votes do not count before they have run for that long; so their clock is moved on. */
  readonly maxTtlMs?: number
  /** A clock for each, for tests that step some of them. */
  readonly clocks?: readonly ServerClock[]
}

const [ioredis6] = libraries

export async function startNodes({
  count = 5,
  maxTtlMs = 60_000,
  clocks,
}: NodesOptions = {}): Promise<Nodes> {
  const clock = createClock()
  const clusters =
    clocks === undefined
      ? [await startRedisNodes(count, { clock })]
      : await Promise.all(clocks.map((each) => startRedisNodes(1, { clock: each })))
  const servers = clusters.flatMap((cluster) => cluster.members)
  for (const each of clocks ?? [clock]) each.step(2 * maxTtlMs)
  const proxies = await Promise.all(servers.map((server) => startProxy(server)))
  const opened: (OpenedClient & { readonly node: number })[] = []
  const backends: Backend<'unfenced'>[] = []
  const endClients = async () => {
    for (const proxy of proxies) proxy.heal()
    await Promise.all(backends.splice(0).map((backend) => backend[Symbol.asyncDispose]()))
    for (const client of opened.splice(0)) client.close()
  }
  const stop = async () => {
    await endClients()
    await Promise.all(proxies.map((proxy) => proxy.close()))
    await Promise.all(clusters.map((cluster) => cluster.stop()))
  }
  return {
    servers,
    proxies,
    clock,
    async backend({ library = ioredis6, direct = false, nodes = servers.length, ...options } = {}) {
      if (library === undefined) throw new Error('there is no client library')
      const clients = await Promise.all(
        (direct ? servers : proxies)
          .slice(0, nodes)
          .map(({ host, port }) => library.open(`redis://${host}:${port}`)),
      )
      opened.push(...clients.map((client, node) => ({ ...client, node })))
      const backend = redlock({ clients: clients.map(({ client }) => client), maxTtlMs, ...options })
      backends.push(backend)
      return backend
    },
    call: (...command) => Promise.all(servers.map((server) => redisCall(server, ...command))),
    // Every connection answers in order.
    async flush(frozen = []) {
      await Promise.all(opened.filter(({ node }) => !frozen.includes(node)).map(ping))
    },
    endClients,
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

function ping({ client }: OpenedClient): Promise<unknown> {
  if ('call' in client) return client.call('PING')
  return client.sendCommand(...([['PING']] as never[]))
}
