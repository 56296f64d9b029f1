/** An ensemble with a proxy before each member, and clients on it that end with the test. */
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { type Server, startZooKeeper, waitFor, type ZooKeeperEnsemble } from 'holdfast-lab/servers'
import { callWith } from '../../src/base/aborting.ts'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { ZooKeeperClient, type ZooKeeperClientOptions } from '../../src/engines/zookeeper/client/index.ts'
import { sessionsAt } from './sessions.ts'

export const MAX_TIMEOUT_MS = 60_000

export interface Door {
  readonly server: Server
  readonly proxy: FaultyProxy
  readonly host: string
}

export class ClientRig implements AsyncDisposable {
  readonly ensemble: ZooKeeperEnsemble
  readonly doors: readonly Door[]
  readonly #clients: ZooKeeperClient[] = []

  private constructor(ensemble: ZooKeeperEnsemble, doors: readonly Door[]) {
    this.ensemble = ensemble
    this.doors = doors
  }

  static async start(): Promise<ClientRig> {
    const settings = { maxSessionTimeout: String(MAX_TIMEOUT_MS) }
    const ensemble = await startZooKeeper({ members: 3, partitions: true, settings })
    const doors = ensemble.members.map(async (server): Promise<Door> => {
      const proxy = await startProxy(server)
      return { server, proxy, host: `${proxy.host}:${proxy.port}` }
    })
    return new ClientRig(ensemble, await Promise.all(doors))
  }

  /** Members in the order in which they are tried: the given ones, or all. */
  client(
    doors: readonly Door[] = this.doors,
    options: Partial<ZooKeeperClientOptions> = {},
    clock: Clock = systemClock,
  ) {
    const hosts = doors.map(({ host }) => host)
    const first = { ...systemRandom, fraction: () => 0 }
    const client = new ZooKeeperClient('zookeeper', { hosts, acl: 'open', ...options }, clock, first)
    this.#clients.push(client)
    return client
  }

  /** A client that is not behind the proxies. */
  ensembleClient(): ZooKeeperClient {
    return this.client(
      this.doors.map(({ server, proxy }) => ({ server, proxy, host: `${server.host}:${server.port}` })),
    )
  }

  async leader(): Promise<Door> {
    const leader = await this.ensemble.leader()
    return this.doors.find(({ server }) => server === leader) as Door
  }

  async followers(): Promise<[Door, Door]> {
    const leader = await this.leader()
    return this.doors.filter((door) => door !== leader) as [Door, Door]
  }

  /** The ids of all sessions, as the leader tracks them. */
  sessions(): Promise<bigint[]> {
    return sessionsAt(this.ensemble)
  }

  /** Ends the clients of a test, its faults, and what it has left behind. */
  async clear(): Promise<void> {
    this.ensemble.heal()
    for (const { proxy, server } of this.doors) {
      proxy.heal()
      await server.resume()
    }
    for (const client of this.#clients.splice(0)) await client.close()
    await waitFor('all members', async () => {
      const client = this.client()
      for (const door of this.doors) await this.client([door]).shared(callWith())
      for (const id of await this.sessions()) await client.attach(id, 4_000).end(callWith())
      for (const used of this.#clients.splice(0)) await used.close()
      return true
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients.splice(0)) await client.close()
    await Promise.all(this.doors.map(({ proxy }) => proxy.close()))
    await this.ensemble.stop()
  }
}
