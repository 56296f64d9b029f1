import { type FaultyProxy, startProxy } from '../faults/proxy.ts'
import { need } from '../obtain/find.ts'
import { type Cluster, clusterOf, startTogether } from './cluster.ts'
import { fetchJson } from './http.ts'
import { claimPorts, host } from './ports.ts'
import { newFolder } from './run.ts'
import { type Server, startServer } from './server.ts'
import { waitFor } from './wait.ts'

export interface EtcdOptions {
  readonly members?: number
  /** The smallest lease is longer than an election takes. Shorter times elect leaders for no reason on a busy machine. */
  readonly timing?: { readonly heartbeatMs: number; readonly electionMs: number }
  /** Whether a write reaches the disk before it counts; off unless a test or benchmark is about that. */
  readonly fsync?: boolean
  /** Lets the members talk through proxies, so that one can be cut off from the others. Clients still reach it. */
  readonly partitions?: boolean
  readonly arguments?: readonly string[]
  /** Files in PEM form. Clients must have a certificate of the authority. */
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string }
}

export interface EtcdCluster extends Cluster {
  /** The leader by the latest term that any member knows of. */
  leader(): Promise<Server>
  /** Nothing passes between this member and the others, in either direction. */
  cutOff(member: Server): Promise<void>
  heal(): void
}

interface Plan {
  readonly name: string
  readonly port: number
  readonly peerPort: number
  /** Without TLS, for the question whether it is ready. */
  readonly healthPort: number
  /** Where the others reach it: its own peer port, or a proxy in front of it. */
  readonly advertised: number
  readonly proxy: FaultyProxy | null
}

interface Status {
  readonly header: { readonly member_id: string }
  readonly leader?: string
  readonly raftTerm?: string
}

export async function startEtcd(options: EtcdOptions = {}): Promise<EtcdCluster> {
  const plans = await Promise.all(Array.from({ length: options.members ?? 1 }, (_, i) => plan(i, options)))
  const cluster = plans.map(({ name, advertised }) => `${name}=http://${host}:${advertised}`).join(',')
  const members = await startTogether(plans.map((each) => startMember(each, cluster, options)))
  return etcdCluster(members, plans)
}

async function plan(index: number, { members = 1, partitions = false }: EtcdOptions): Promise<Plan> {
  const [port = 0, peerPort = 0, healthPort = 0] = await claimPorts(3)
  const proxy = partitions ? await startProxy({ host, port: peerPort }, { label: senderOf }) : null
  const name = members === 1 ? 'etcd' : `etcd-${index + 1}`
  return { name, port, peerPort, healthPort, advertised: proxy?.port ?? peerPort, proxy }
}

/** Members say who they are in the head of their first request to each other. */
function senderOf(firstBytes: Buffer): string {
  return /^X-Server-From: (\w+)/im.exec(firstBytes.toString('latin1'))?.[1] ?? ''
}

function startMember(plan: Plan, cluster: string, options: EtcdOptions): Promise<Server> {
  const { name, port, peerPort, healthPort, advertised } = plan
  const { tls, timing = { heartbeatMs: 100, electionMs: 1_000 }, fsync = false } = options
  const folder = newFolder(name)
  const url = `${tls === undefined ? 'http' : 'https'}://${host}:${port}`
  const settings = {
    name,
    'data-dir': `${folder}/data`,
    'listen-client-urls': url,
    'advertise-client-urls': url,
    'listen-metrics-urls': `http://${host}:${healthPort}`,
    'listen-peer-urls': `http://${host}:${peerPort}`,
    'initial-advertise-peer-urls': `http://${host}:${advertised}`,
    'initial-cluster': cluster,
    'initial-cluster-state': 'new',
    'initial-cluster-token': cluster,
    'heartbeat-interval': timing.heartbeatMs,
    'election-timeout': timing.electionMs,
    'log-level': 'warn',
  }
  return startServer({
    name,
    url,
    port,
    otherPorts: [peerPort, healthPort],
    folder,
    program: need('etcd').path,
    arguments: [
      ...Object.entries(settings).flatMap(([key, value]) => [`--${key}`, String(value)]),
      ...(fsync ? [] : ['--unsafe-no-fsync']),
      ...(tls === undefined
        ? []
        : ['--cert-file', tls.cert, '--key-file', tls.key, '--trusted-ca-file', tls.ca]),
      ...(tls === undefined ? [] : ['--client-cert-auth']),
      ...(options.arguments ?? []),
    ],
    // Its own orderly end hands leadership over first and takes seconds; it is made to survive this one.
    quit: 'SIGKILL',
    async ready() {
      const { health } = await fetchJson<{ health: string }>(`http://${host}:${healthPort}/health`)
      return health === 'true'
    },
  })
}

function etcdCluster(members: readonly Server[], plans: readonly Plan[]): EtcdCluster {
  const cluster = clusterOf('etcd', 'etcd', members)
  const stop = async () => {
    await Promise.all([cluster.stop(), ...plans.map(({ proxy }) => proxy?.close())])
  }
  return {
    ...cluster,
    stop,
    [Symbol.asyncDispose]: stop,
    leader: () => waitFor('a leader of etcd', () => findLeader(members)),
    async cutOff(member) {
      const proxies = plans.map(({ proxy }) => proxy).filter((proxy) => proxy !== null)
      const own = proxies[members.indexOf(member)]
      if (own === undefined) throw new Error('this etcd was started without partitions')
      const id = BigInt((await statusOf(member)).header.member_id).toString(16)
      for (const proxy of proxies) proxy.blackhole((link) => proxy === own || link.label === id)
    },
    heal() {
      for (const { proxy } of plans) proxy?.heal()
    },
  }
}

async function findLeader(members: readonly Server[]): Promise<Server | null> {
  const asked = await Promise.allSettled(
    members.map(async (member) => ({ member, ...(await statusOf(member)) })),
  )
  const answers = asked.filter((each) => each.status === 'fulfilled').map(({ value }) => value)
  const [latest] = answers
    .filter(({ leader = '0' }) => leader !== '0')
    .sort((a, b) => Number(b.raftTerm) - Number(a.raftTerm))
  return answers.find(({ header }) => header.member_id === latest?.leader)?.member ?? null
}

function statusOf({ url }: Server): Promise<Status> {
  return fetchJson(`${url}/v3/maintenance/status`, { method: 'POST', body: '{}' }, 1_000)
}
