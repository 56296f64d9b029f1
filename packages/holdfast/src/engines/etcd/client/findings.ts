/** Findings about a cluster's configuration that matter for locks. */
import type { Clock } from '../../../base/clock.ts'
import type { Call, Finding } from '../../../spi.ts'
import type { EtcdClient } from './client.ts'
import { methods } from './messages.ts'
import { prefixed } from './transactions.ts'

/** etcd's own default of `--quota-backend-bytes`. Only etcd 3.6 tells the real one. */
const DEFAULT_QUOTA = 2 * 2 ** 30

/** A keep-alive is two calls, and comes every third of a TTL. Slower ones leave no time for a second try. */
const CALLS_IN_A_TTL = 12
const PROBES = 5

export async function clusterFindings(
  client: EtcdClient,
  clock: Clock,
  minTtlMs: number,
  call: Call,
): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  const add = (code: string, severity: Finding['severity'], what: string, why: string, fix: string) =>
    findings.push({ code: `HOLDFAST_ETCD_${code}`, severity, what, why, fix })

  let worstMs = 0
  for (let probe = 0; probe < PROBES; probe++) {
    const fromMs = clock.monotonicMs()
    await client.ask(methods.range, { key: 'holdfast/', limit: 1, keys_only: true }, call)
    worstMs = Math.max(worstMs, Math.round(clock.monotonicMs() - fromMs))
  }
  if (worstMs * CALLS_IN_A_TTL > minTtlMs)
    add(
      'SLOW',
      'warning',
      `The slowest of ${PROBES} reads took ${worstMs} ms, and the shortest TTL is ${minTtlMs} ms.`,
      'A lease that is so short is lost when one renewal is late.',
      `Use TTLs of ${Math.ceil((worstMs * CALLS_IN_A_TTL) / 1_000)} s or more, or see to disks and network of the cluster.`,
    )
  const { members } = await client.ask(methods.memberList, {}, call)
  const voters = members.filter(({ is_learner }) => !is_learner)
  if (voters.length < 3)
    add(
      'FEW_MEMBERS',
      'warning',
      `The cluster has ${voters.length} voting member${voters.length === 1 ? '' : 's'}.`,
      'With fewer than three, locks stop when one member is down, and one lost disk loses them.',
      'Run three or five members.',
    )
  const states = await Promise.allSettled(
    client.hosts.map((host) => client.askMember(host, methods.status, {}, call)),
  )
  for (const [index, state] of states.entries()) {
    const host = client.hosts[index] ?? ''
    if (state.status === 'rejected') {
      add(
        'MEMBER_DOWN',
        'warning',
        `${host} does not answer: ${state.reason instanceof Error ? state.reason.message : state.reason}`,
        'Another member that fails may be one too many.',
        'Start it again, or take it out of the list of hosts.',
      )
      continue
    }
    const { errors, db_size, db_size_quota, is_learner } = state.value
    const quota = db_size_quota || DEFAULT_QUOTA
    if (is_learner)
      add(
        'LEARNER',
        'note',
        `${host} is a learner.`,
        'A learner refuses locks, so every client that comes to it goes on to the next host.',
        'Name voting members as hosts.',
      )
    for (const error of errors)
      add(
        /NOSPACE|CORRUPT/.test(error) ? 'ALARM' : 'MEMBER_ERROR',
        'danger',
        `${host} reports: ${error}.`,
        'With an alarm etcd refuses writes, so nothing can be acquired.',
        'See the guide of etcd for this alarm: compact, defragment and disarm, or replace the member.',
      )
    if (db_size > 0.8 * quota)
      add(
        'QUOTA',
        'warning',
        `The database of ${host} has ${Math.round(db_size / 2 ** 20)} MiB, of ${Math.round(quota / 2 ** 20)} MiB${db_size_quota === 0 ? ' (the default; the real quota cannot be read)' : ''}.`,
        'When the quota is reached, etcd refuses writes: nothing can be acquired or released.',
        'Turn on --auto-compaction-retention, defragment, or raise --quota-backend-bytes.',
      )
  }
  const foreign = await client.ask(
    methods.range,
    { ...prefixed('/registry/'), limit: 1, keys_only: true },
    call,
  )
  if (foreign.count > 0)
    add(
      'KUBERNETES',
      'danger',
      'This looks like the etcd of a Kubernetes control plane: there are keys below /registry/.',
      'Locks that fill it or slow it down stop the whole cluster, and its operators do not expect other keys.',
      'Use an etcd of your own.',
    )
  return findings
}
