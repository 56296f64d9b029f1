/** Findings about a cluster's configuration that matter for locks. */
import type { Clock } from '../../../base/clock.ts'
import { withLimit } from '../../../base/within.ts'
import type { Call, Finding } from '../../../spi.ts'
import * as consul from '../client/index.ts'

/** A process has up to 17, and others behind the same address have as many. */
const FEW_CONNECTIONS = 50
const LONG_TTL_MS = 10_000
/** For what only the leader knows. */
const LEADER_LIMIT_MS = 2_000

type Add = (code: string, severity: Finding['severity'], what: string, why: string, fix: string) => void

export async function clusterFindings(
  client: consul.ConsulClient,
  minTtlMs: number,
  clock: Clock,
  call: Call,
): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  const add: Add = (code, severity, what, why, fix) =>
    findings.push({ code: `HOLDFAST_CONSUL_${code}`, severity, what, why, fix })
  const asked = client.hosts.map(async (host) => {
    try {
      const { Config, DebugConfig } = await client.askMember(host, reads('/v1/agent/self'), call)
      judgeMember(host, consul.recordOf(Config), consul.recordOf(DebugConfig), add)
    } catch (error) {
      judgeFailure(host, messageOf(error), add)
    }
  })
  // Without a leader it has no answer, and the findings must come before a caller's limit.
  const judged = withLimit(clock, LEADER_LIMIT_MS, (limit) => judgeServers(client, add, limit), {
    tie: (limit) => call.onCancel(() => limit.cancel(call.signal.reason)),
  })
  await Promise.all([...asked, judged])
  if (minTtlMs > LONG_TTL_MS)
    add(
      'LONG_TTL',
      'note',
      `No session may be shorter than ${minTtlMs} ms.`,
      'The names of a dead holder stay taken for twice this time.',
      'Lower `session_ttl_min`.',
    )
  return findings
}

function judgeMember(
  host: string,
  { Server }: Readonly<Record<string, unknown>>,
  { ACLsEnabled, HTTPMaxConnsPerClient: most }: Readonly<Record<string, unknown>>,
  add: Add,
): void {
  if (Server === false)
    add(
      'AGENT',
      'note',
      `${host} is an agent that is no server.`,
      'It may pass each request to another server, so after an election a renewal may count that only an old leader has seen.',
      'Name servers as hosts.',
    )
  if (ACLsEnabled === false)
    add(
      'ACL_OFF',
      'warning',
      `${host} has no access control.`,
      'Whoever reaches it may take, release and delete locks.',
      'Turn on ACLs, with `default_policy` "deny".',
    )
  if (typeof most === 'number' && most > 0 && most < FEW_CONNECTIONS)
    add(
      'FEW_CONNECTIONS',
      'warning',
      `${host} allows ${most} connections of one address.`,
      'One process has up to 17. Above the limit Consul closes connections, and counts those that have gone for seconds.',
      'Raise `limits.http_max_conns_per_client`; its default is 200.',
    )
}

function judgeFailure(host: string, why: string, add: Add): void {
  if (/knows no leader/.test(why))
    add(
      'NO_LEADER',
      'danger',
      `${host} knows no leader.`,
      'Nothing can be acquired or released.',
      'Start more servers.',
    )
  else if (/Permission denied|ACL/.test(why))
    add(
      'UNREADABLE',
      'warning',
      `${host} does not show its configuration.`,
      'Its settings could not be checked.',
      'Give the token agent_prefix "" and operator, with policy "read".',
    )
  else
    add(
      'MEMBER_DOWN',
      'warning',
      `${host} does not answer: ${why}`,
      'Another server that fails may be one too many.',
      'Start it again, or take it out of the list of hosts.',
    )
}

async function judgeServers(client: consul.ConsulClient, add: Add, call: Call): Promise<void> {
  try {
    const { Servers } = await client.ask(reads('/v1/operator/raft/configuration'), call)
    const voters = consul.arrayOf(Servers).filter((server) => consul.recordOf(server).Voter === true)
    if (voters.length < 3)
      add(
        'FEW_SERVERS',
        'warning',
        `The cluster has ${voters.length} voting server${voters.length === 1 ? '' : 's'}.`,
        'With fewer than three, locks stop when one server is down, and one lost disk loses them.',
        'Run three or five servers.',
      )
    const health = await client.ask(reads('/v1/operator/autopilot/health'), call)
    for (const server of consul.arrayOf(health.Servers ?? []).map(consul.recordOf))
      if (server.Healthy !== true)
        add(
          'UNHEALTHY',
          'warning',
          `Consul says that its server ${server.Name} is not healthy.`,
          'Another server that fails may be one too many.',
          'See `consul operator autopilot` and its log.',
        )
  } catch (error) {
    judgeFailure('the cluster', messageOf(error), add)
  }
}

/** Autopilot says that it is not healthy by the status 429. */
function reads(path: string): consul.Question<Readonly<Record<string, unknown>>> {
  const read = (status: number, body: unknown) =>
    consul.recordOf(status === 429 ? JSON.parse(String(body)) : body)
  return { method: 'GET', path, isRead: true, also: [429], read }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
