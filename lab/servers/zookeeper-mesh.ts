import { type FaultyProxy, startProxy } from '../faults/proxy.ts'
import { host } from './ports.ts'

export interface PeerPorts {
  readonly quorum: number
  readonly election: number
}

interface Edge {
  readonly to: number
  readonly from: number
  readonly quorum: FaultyProxy
  readonly election: FaultyProxy
}

/**
 * A proxy for each pair of members and each direction. Every member has its own file that says where the others are,
 * so each can be told its own way to them.
 */
export async function openMesh(members: readonly PeerPorts[]) {
  const pairs = members
    .flatMap((_, to) => members.map((_, from) => ({ to, from })))
    .filter(({ to, from }) => to !== from)
  const edges = await Promise.all(pairs.map((pair) => openEdge(pair, members[pair.to])))
  const proxies = edges.flatMap(({ quorum, election }) => [quorum, election])
  return {
    /** The ports by which `from` reaches `to`; null for itself, which listens on its own. */
    portsOf(to: number, from: number): PeerPorts | null {
      const edge = edges.find((each) => each.to === to && each.from === from)
      return edge ? { quorum: edge.quorum.port, election: edge.election.port } : null
    },
    cutOff(member: number): void {
      for (const edge of edges.filter(({ to, from }) => to === member || from === member)) {
        edge.quorum.blackhole()
        edge.election.blackhole()
      }
    },
    /** What `from` sends to `to` is kept until the network heals, on connections that either of them has made. */
    stall(from: number, to: number): void {
      const hold = ({ quorum, election }: Edge, direction: 'up' | 'down') => {
        quorum.hold(direction)
        election.hold(direction)
      }
      for (const edge of edges) {
        if (edge.from === from && edge.to === to) hold(edge, 'up')
        if (edge.from === to && edge.to === from) hold(edge, 'down')
      }
    },
    heal(): void {
      for (const proxy of proxies) proxy.heal()
    },
    async close(): Promise<void> {
      await Promise.all(proxies.map((proxy) => proxy.close()))
    },
  }
}

async function openEdge(pair: { to: number; from: number }, target: PeerPorts | undefined): Promise<Edge> {
  if (target === undefined) throw new Error('an edge needs two members')
  const quorum = await startProxy({ host, port: target.quorum })
  const election = await startProxy({ host, port: target.election })
  return { ...pair, quorum, election }
}
