/** A cluster of the lab with a proxy before each member, for the worlds of `describeCluster`. */
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import type { Server } from 'holdfast-lab/servers'
import type { ClusterMember } from '../src/testing/describe-cluster.ts'

/** The part of a lab's cluster that is used here. */
export interface FaultyCluster {
  readonly members: readonly Server[]
  leader(): Promise<Server>
  cutOff?(member: Server): void | Promise<void>
  heal?(): void
}

interface Entry {
  readonly server: Server
  readonly proxy: FaultyProxy
  readonly member: ClusterMember
}

export class ClusterDoors implements AsyncDisposable {
  readonly #cluster: FaultyCluster
  readonly #entries: readonly Entry[]
  /** And not restarted: the case has failed in between. */
  readonly #killed: ReadonlySet<Server>

  private constructor(cluster: FaultyCluster, entries: readonly Entry[], killed: ReadonlySet<Server>) {
    this.#cluster = cluster
    this.#entries = entries
    this.#killed = killed
  }

  static async open(cluster: FaultyCluster): Promise<ClusterDoors> {
    const killed = new Set<Server>()
    const entries = cluster.members.map(async (server): Promise<Entry> => {
      const proxy = await startProxy(server)
      const door = {
        cut: () => proxy.reset(),
        blackhole: () => proxy.blackhole(),
        dropAnswers: () => proxy.drop('down'),
        hold: () => proxy.hold('both'),
        heal: () => proxy.heal(),
      }
      const cutOff = async () => cluster.cutOff?.(server)
      const member = {
        door,
        pause: () => server.pause(),
        resume: () => server.resume(),
        async kill() {
          await server.kill()
          killed.add(server)
        },
        async restart() {
          await server.restart()
          killed.delete(server)
        },
        ...(cluster.cutOff && { cutOff }),
      }
      return { server, proxy, member }
    })
    return new ClusterDoors(cluster, await Promise.all(entries), killed)
  }

  get members(): readonly ClusterMember[] {
    return this.#entries.map(({ member }) => member)
  }

  async leader(): Promise<ClusterMember> {
    const leader = await this.#cluster.leader()
    return this.#entry(({ server }) => server === leader).member
  }

  addresses(members: readonly ClusterMember[], way: 'direct' | 'doors'): { host: string; port: number }[] {
    return members.map((member) => {
      const { server, proxy } = this.#entry((each) => each.member === member)
      return way === 'doors' ? proxy : server
    })
  }

  /** Nothing is cut off, and all members run. Whether they follow a leader is for the engine's world to ask. */
  async heal(): Promise<void> {
    for (const { proxy } of this.#entries) proxy.heal()
    this.#cluster.heal?.()
    for (const { server, member } of this.#entries)
      await (this.#killed.has(server) ? member.restart() : server.resume())
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { proxy } of this.#entries) await proxy.close()
  }

  #entry(isMeant: (entry: Entry) => boolean): Entry {
    const entry = this.#entries.find(isMeant)
    if (entry === undefined) throw new Error('it is no member of this cluster')
    return entry
  }
}
