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
}

export interface ConsulCluster extends Cluster {
  leader(): Promise<Server>
}

interface Plan {
  readonly name: string
  readonly http: number
  readonly server: number
  readonly serf: number
}

export async function startConsul({
  members: count = 1,
  settings = {},
}: ConsulOptions = {}): Promise<ConsulCluster> {
  const plans = await Promise.all(
    Array.from({ length: count }, async (_, index): Promise<Plan> => {
      const [http = 0, server = 0, serf = 0] = await claimPorts(3)
      return { name: count === 1 ? 'consul' : `consul-${index + 1}`, http, server, serf }
    }),
  )
  const members = await startTogether(plans.map((plan) => startMember(plan, plans, settings)))
  return {
    ...clusterOf('consul', 'consul', members),
    leader: () => waitFor('a leader of Consul', () => findLeader(members, plans)),
  }
}

function startMember(
  plan: Plan,
  plans: readonly Plan[],
  settings: Readonly<Record<string, unknown>>,
): Promise<Server> {
  const { name, http, server, serf } = plan
  const folder = newFolder(name)
  const alone = plans.length === 1
  const configuration = {
    node_name: name,
    bind_addr: host,
    client_addr: host,
    ports: { http, server, serf_lan: serf, serf_wan: -1, dns: -1, grpc: -1, https: -1 },
    session_ttl_min: '1s',
    performance: { raft_multiplier: 1 },
    disable_update_check: true,
    ...(alone
      ? {}
      : {
          server: true,
          bootstrap_expect: plans.length,
          data_dir: join(folder, 'data'),
          retry_join: plans.map((peer) => `${host}:${peer.serf}`),
          retry_interval: '250ms',
        }),
    ...settings,
  }
  const file = join(folder, 'consul.json')
  writeFileSync(file, JSON.stringify(configuration, null, 2))
  return startServer({
    name,
    url: `http://${host}:${http}`,
    port: http,
    otherPorts: [server, serf],
    folder,
    program: need('consul').path,
    arguments: ['agent', ...(alone ? ['-dev'] : []), `-config-file=${file}`, '-log-level=warn'],
    quit: 'SIGINT',
    ready: () => canCreateSession(`http://${host}:${http}`),
  })
}

/** An agent answers long before it is registered as a node, and until then every session is refused. */
async function canCreateSession(url: string): Promise<boolean> {
  const body = JSON.stringify({ Name: 'ready?', TTL: '10s' })
  const { ID } = await fetchJson<{ ID: string }>(`${url}/v1/session/create`, { method: 'PUT', body })
  return fetchJson<boolean>(`${url}/v1/session/destroy/${ID}`, { method: 'PUT' })
}

async function findLeader(members: readonly Server[], plans: readonly Plan[]): Promise<Server | null> {
  const views = await Promise.allSettled(
    members.map(({ url }) => fetchJson<string>(`${url}/v1/status/leader`, {}, 1_000)),
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
