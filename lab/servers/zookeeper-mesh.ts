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
  const portOf = (to: number, from: number) =>
    edges.find((each) => each.to === to && each.from === from)?.election.port ?? 0
  const edges: readonly Edge[] = await Promise.all(
    pairs.map((pair) => openEdge(pair, members[pair.to], () => portOf(pair.from, pair.to))),
  )
  const proxies = edges.flatMap(({ quorum, election }) => [quorum, election])
  return {
    /** The ports by which `from` reaches `to`; null for itself, which listens on its own. */
    portsOf(to: number, from: number): PeerPorts | null {
      const edge = edges.find((each) => each.to === to && each.from === from)
      return edge ? { quorum: edge.quorum.port, election: edge.election.port } : null
    },
    cutOff(member: number): void {
      for (const edge of edges.filter(({ to, from }) => to === member || from === member)) {
        for (const proxy of [edge.quorum, edge.election]) {
          proxy.blackhole()
          // A connection that is accepted and silent would take the place of a leader for the whole initLimit.
          proxy.refuse()
        }
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

async function openEdge(
  pair: { to: number; from: number },
  target: PeerPorts | undefined,
  back: () => number,
): Promise<Edge> {
  if (target === undefined) throw new Error('an edge needs two members')
  const quorum = await startProxy({ host, port: target.quorum })
  const rewrite = (first: Buffer) => withAddress(first, `${host}:${back()}`)
  const election = await startProxy({ host, port: target.election }, { rewrite })
  return { ...pair, quorum, election }
}

const versionAndId = 16

/**
 * A member begins an election's connection with a version, its id and its own address. The other one may close the connection and make
 * one to that address: without this it would go past the proxies, and a member that is cut off would still be elected.
 */
function withAddress(first: Buffer, address: string): Buffer {
  const length = first.readInt32BE(versionAndId)
  const rest = versionAndId + 4 + length
  if (rest > first.length) throw new Error('the beginning of a connection came in pieces')
  const bytes = Buffer.alloc(4 + address.length)
  bytes.writeInt32BE(address.length)
  bytes.write(address, 4)
  return Buffer.concat([first.subarray(0, versionAndId), bytes, first.subarray(rest)])
}
