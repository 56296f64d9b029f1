import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'
import type { Clock } from '../faults/clock-shim.ts'
import { need, programOf } from '../obtain/find.ts'
import { type Cluster, clusterOf, startTogether } from './cluster.ts'
import { claimPorts, host } from './ports.ts'
import { newFolder } from './run.ts'
import { type Server, startServer } from './server.ts'
import { waitFor } from './wait.ts'
import { openMesh, type PeerPorts } from './zookeeper-mesh.ts'

export interface ZooKeeperOptions {
  readonly members?: number
  readonly tickMs?: number
  /** Whether a write reaches the disk before it counts; off unless a test or benchmark is about that. */
  readonly fsync?: boolean
  /** Lets the members talk through proxies, so that one can be cut off from the others. Clients still reach it. */
  readonly partitions?: boolean
  readonly clock?: Clock
  /** Serves TLS beside plain text, and asks clients for a certificate. PEM files; the key is in PKCS #8. */
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string }
  /** Further lines of its configuration. */
  readonly settings?: Readonly<Record<string, string>>
}

export interface ZooKeeperEnsemble extends Cluster {
  /** The member that says it leads; right after a fault, two may say so for a moment. */
  leader(): Promise<Server>
  /** Nothing passes between this member and the others, in either direction. */
  cutOff(member: Server): void
  /** What `from` sends to `to` does not arrive before the network heals. The other direction passes. */
  stall(from: Server, to: Server): void
  heal(): void
}

interface Plan extends PeerPorts {
  readonly name: string
  readonly port: number
}

export async function startZooKeeper(options: ZooKeeperOptions = {}): Promise<ZooKeeperEnsemble> {
  const count = options.members ?? 1
  const plans = await Promise.all(
    Array.from({ length: count }, async (_, index): Promise<Plan> => {
      const [port = 0, quorum = 0, election = 0] = await claimPorts(3)
      return { name: count === 1 ? 'zookeeper' : `zookeeper-${index + 1}`, port, quorum, election }
    }),
  )
  const mesh = options.partitions ? await openMesh(plans) : null
  const members = await startTogether(
    plans.map((plan, self) =>
      startMember(
        plan,
        self,
        plans.map((peer, index) => mesh?.portsOf(index, self) ?? peer),
        options,
      ),
    ),
  )
  const cluster = clusterOf('zookeeper', 'zookeeper', members)
  const stop = async () => {
    await Promise.all([cluster.stop(), mesh?.close()])
  }
  const between = () => {
    if (mesh === null) throw new Error('this ZooKeeper was started without partitions')
    return mesh
  }
  return {
    ...cluster,
    stop,
    [Symbol.asyncDispose]: stop,
    leader: () => waitFor('a leader of ZooKeeper', () => findLeader(members)),
    cutOff: (member) => between().cutOff(members.indexOf(member)),
    stall: (from, to) => between().stall(members.indexOf(from), members.indexOf(to)),
    heal: () => mesh?.heal(),
  }
}

function startMember(
  plan: Plan,
  self: number,
  peers: readonly PeerPorts[],
  { tickMs = 200, fsync = false, partitions = false, clock, tls, settings }: ZooKeeperOptions,
): Promise<Server> {
  const { name, port, quorum, election } = plan
  const found = need('zookeeper')
  const folder = newFolder(name)
  const all: Record<string, string | number> = {
    tickTime: tickMs,
    minSessionTimeout: 2 * tickMs,
    // A member that takes itself for elected waits so long for followers: after a partition that costs the most time.
    initLimit: partitions ? 20 : 50,
    syncLimit: 20,
    // Members that elect ask each other after pauses that double; by default up to a minute.
    'fastleader.maxNotificationInterval': 1_000,
    dataDir: join(folder, 'data'),
    clientPort: port,
    clientPortAddress: host,
    'admin.enableServer': 'false',
    '4lw.commands.whitelist': '*',
    forceSync: fsync ? 'yes' : 'no',
    ...(peers.length === 1
      ? {}
      : Object.fromEntries(peers.map((peer, i) => [`server.${i + 1}`, serverLine(peer)]))),
    ...(tls && tlsSettings(tls, join(folder, 'server.pem'))),
    ...settings,
  }
  mkdirSync(join(folder, 'data'))
  if (tls)
    writeFileSync(join(folder, 'server.pem'), readFileSync(tls.key, 'utf8') + readFileSync(tls.cert, 'utf8'))
  writeFileSync(join(folder, 'data/myid'), String(self + 1))
  const configuration = join(folder, 'zoo.cfg')
  writeFileSync(
    configuration,
    Object.entries(all)
      .map(([key, value]) => `${key}=${value}\n`)
      .join(''),
  )
  return startServer({
    name,
    url: `zookeeper://${host}:${port}`,
    port,
    otherPorts: [quorum, election],
    folder,
    program: programOf(found, 'java'),
    arguments: [
      ...['-Xmx128m', '-Xms32m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Xshare:auto'],
      // A member that was alone for a while otherwise asks the others less and less often, up to once a minute.
      '-Dzookeeper.fastleader.maxNotificationInterval=1000',
      ...[
        '-Dorg.slf4j.simpleLogger.defaultLogLevel=info',
        '-Dorg.slf4j.simpleLogger.showDateTime=true',
        '-cp',
        classPath(found.path),
      ],
      ...['org.apache.zookeeper.server.quorum.QuorumPeerMain', configuration],
    ],
    ...(clock ? { environment: clock.environment } : {}),
    quit: 'SIGTERM',
    ready: async () => (await modeOf({ host, port })) !== null,
  })
}

function serverLine({ quorum, election }: PeerPorts): string {
  return `${host}:${quorum}:${election}`
}

function tlsSettings({ ca }: NonNullable<ZooKeeperOptions['tls']>, keyAndCertificate: string) {
  return {
    serverCnxnFactory: 'org.apache.zookeeper.server.NettyServerCnxnFactory',
    // The state of a member is asked for in plain text.
    'client.portUnification': 'true',
    'authProvider.x509': 'org.apache.zookeeper.server.auth.X509AuthenticationProvider',
    'ssl.clientAuth': 'need',
    'ssl.keyStore.location': keyAndCertificate,
    'ssl.keyStore.type': 'PEM',
    'ssl.trustStore.location': ca,
    'ssl.trustStore.type': 'PEM',
  }
}

/** Without a logger, it says nothing at all, and a failed start would be a riddle. Debian's manifest forgets parts of Netty. */
const libraries =
  /^(zookeeper-jute|slf4j-(api|simple)|netty-[a-z-]+|metrics-core|snappy-java|commons-(cli|io))\.jar$/

/** The manifest names archives by where they lie when installed, and these follow it: those of another version are beside it, and come first. */
function classPath(jar: string): string {
  const folder = dirname(jar)
  const beside = readdirSync(folder).filter((name) => libraries.test(name))
  return [...beside.map((name) => join(folder, name)), jar].join(':')
}

async function findLeader(members: readonly Server[]): Promise<Server | null> {
  const modes = await Promise.allSettled(members.map(modeOf))
  return members.find((_, i) => modes[i]?.status === 'fulfilled' && leads.has(String(modes[i].value))) ?? null
}

const leads = new Set(['leader', 'standalone'])

/** The role of a member in its own words; null while it takes part in no quorum and serves no client. */
export async function modeOf(address: { host: string; port: number }): Promise<string | null> {
  const answer = await fourLetterWord(address, 'srvr')
  return /^Mode: (\w+)/m.exec(answer)?.[1] ?? null
}

/** What a member answers to one of its commands of four letters. */
export function fourLetterWord(
  { host, port }: { host: string; port: number },
  word: string,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port })
    let answer = ''
    socket.setTimeout(1_000, () => socket.destroy(new Error(`no answer to ${word}`)))
    socket.on('data', (chunk) => {
      answer += chunk
    })
    socket.once('error', reject)
    socket.once('close', () => resolve(answer))
    socket.write(word)
  })
}
