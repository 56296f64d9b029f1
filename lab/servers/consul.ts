import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { need } from '../obtain/find.ts'
import { type Cluster, clusterOf, startTogether } from './cluster.ts'
import { fetchJson } from './http.ts'
import { claimPorts, host } from './ports.ts'
import { newFolder } from './run.ts'
import { type Server, startServer } from './server.ts'
import { waitFor } from './wait.ts'

export interface ConsulOptions {
  /** One is Consul's development mode, which forgets everything when it ends; more are servers with a disk. */
  readonly members?: number
  readonly settings?: Readonly<Record<string, unknown>>
  /** The secret of a token that may open sessions, for the question whether it is ready. */
  readonly token?: string
  /** Files in PEM form. Clients must have a certificate of the authority. The port without TLS stays open (`plainUrls`). */
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string }
}

export interface ConsulCluster extends Cluster {
  /** Without TLS. */
  readonly plainUrls: readonly string[]
  leader(): Promise<Server>
  /** An agent that is no server: it passes requests on to one. */
  startAgent(): Promise<Server>
}

interface Plan {
  readonly name: string
  readonly http: number
  readonly https: number
  readonly server: number
  readonly serf: number
}

export async function startConsul(options: ConsulOptions = {}): Promise<ConsulCluster> {
  const { members: count = 1 } = options
  const names = Array.from({ length: count }, (_, index) => (count === 1 ? 'consul' : `consul-${index + 1}`))
  const plans = await Promise.all(names.map(plan))
  const members = await startTogether(plans.map((each) => startMember(each, plans, options)))
  const agents: Server[] = []
  const cluster = clusterOf('consul', 'consul', members)
  const stop = async () => {
    await Promise.all([cluster.stop(), ...agents.map((agent) => agent.stop())])
  }
  return {
    ...cluster,
    stop,
    [Symbol.asyncDispose]: stop,
    plainUrls: plans.map(({ http }) => `http://${host}:${http}`),
    leader: () => waitFor('a leader of Consul', () => findLeader(members, plans)),
    async startAgent() {
      const agent = await startMember(await plan('consul-agent'), plans, options)
      agents.push(agent)
      return agent
    },
  }
}

async function plan(name: string): Promise<Plan> {
  const [http = 0, https = 0, server = 0, serf = 0] = await claimPorts(4)
  return { name, http, https, server, serf }
}

function startMember(
  plan: Plan,
  plans: readonly Plan[],
  { settings = {}, tls, token }: ConsulOptions,
): Promise<Server> {
  const { name, http, https, server, serf } = plan
  const folder = newFolder(name)
  const alone = plans.length === 1
  const isServer = plans.includes(plan)
  const configuration = {
    node_name: name,
    bind_addr: host,
    client_addr: host,
    ports: { http, server, serf_lan: serf, serf_wan: -1, dns: -1, grpc: -1, https: tls ? https : -1 },
    session_ttl_min: '1s',
    performance: { raft_multiplier: 1 },
    disable_update_check: true,
    ...(tls && { ca_file: tls.ca, cert_file: tls.cert, key_file: tls.key, verify_incoming_https: true }),
    ...(!alone && isServer && { server: true, bootstrap_expect: plans.length }),
    ...((!alone || !isServer) && {
      data_dir: join(folder, 'data'),
      retry_join: plans.map((peer) => `${host}:${peer.serf}`),
      retry_interval: '250ms',
    }),
    ...settings,
  }
  const file = join(folder, 'consul.json')
  writeFileSync(file, JSON.stringify(configuration, null, 2))
  const port = tls ? https : http
  return startServer({
    name,
    url: `${tls ? 'https' : 'http'}://${host}:${port}`,
    port,
    otherPorts: [server, serf, tls ? http : https],
    folder,
    program: need('consul').path,
    arguments: ['agent', ...(alone && isServer ? ['-dev'] : []), `-config-file=${file}`, '-log-level=warn'],
    quit: 'SIGINT',
    ready: () => canCreateSession(`http://${host}:${http}`, token),
  })
}

/** An agent answers long before it is registered as a node, and until then every session is refused. */
async function canCreateSession(url: string, token = ''): Promise<boolean> {
  const init = { method: 'PUT', headers: { 'x-consul-token': token } }
  const body = JSON.stringify({ Name: 'ready?' })
  const { ID } = await fetchJson<{ ID: string }>(`${url}/v1/session/create`, { ...init, body })
  return fetchJson<boolean>(`${url}/v1/session/destroy/${ID}`, init)
}

async function findLeader(members: readonly Server[], plans: readonly Plan[]): Promise<Server | null> {
  const views = await Promise.allSettled(
    plans.map(({ http }) => fetchJson<string>(`http://${host}:${http}/v1/status/leader`, {}, 1_000)),
  )
  for (const view of views) {
    if (view.status === 'rejected' || view.value === '') continue
    const index = plans.findIndex(({ server }) => view.value === `${host}:${server}`)
    const member = members[index]
    // A member that was stopped may be named by members that have not noticed; it does not answer for itself.
    if (member && views[index]?.status === 'fulfilled') return member
  }
  return null
}
