/**
 * What a server must be. Before the first session, what is certainly wrong is refused, and what may cost guarantees is told as
 * a `warning` event. `diagnose` tells the same as findings, and further ones.
 */

import { UnsupportedError } from '../../base/errors.ts'
import { warn } from '../../base/events.ts'
import {
  type Concern,
  evictionConcern,
  ifPermitted,
  infoField,
  type RedisConnection,
  type RedisNode,
  refusalOf,
  settingOf,
  textOf,
  unchecked,
} from '../../clients/redis/index.ts'
import type { Call, Finding } from '../../spi.ts'
import type { WaitFor } from './confirming.ts'
import { TOKEN_KEY } from './keys.ts'

/** From this share of maxmemory on, memory runs short. */
const FULL_SHARE = 0.9
/** A clock may be corrected by so much without being wrong. */
const CLOCK_TOLERANCE_MS = 1_000

export interface ServerDemands {
  readonly namespace: string
  readonly isFenced: boolean
  readonly waitFor: WaitFor | null
}

export async function checkServer(
  connection: RedisConnection,
  demands: ServerDemands,
  call: Call,
): Promise<void> {
  await connection.reach(call.signal)
  await connection.checkDatabase(call.signal)
  for (const node of await connection.nodes(call.signal)) {
    const info = await infoOf(node, call)
    const refusal = info === null ? null : refusalOf(info, { waitsForAof: demands.waitFor?.aof === true })
    if (refusal !== null) throw new UnsupportedError(`redis: ${node.label}: ${textOf(refusal)}.`)
    for (const concern of await concernsOf(node, info, demands, call))
      warn({
        backend: 'redis',
        namespace: demands.namespace,
        code: concern.code,
        warning: `${node.label}: ${textOf(concern)}`,
      })
  }
}

export async function diagnoseServer(
  connection: RedisConnection,
  demands: ServerDemands,
  call: Call,
): Promise<readonly Finding[]> {
  await connection.reach(call.signal)
  const findings: Finding[] = []
  for (const node of await connection.nodes(call.signal)) {
    const info = await infoOf(node, call)
    const ofNode = [
      info === null ? null : refusalOf(info, { waitsForAof: demands.waitFor?.aof === true }),
      ...(await concernsOf(node, info, demands, call)),
      ...(info === null ? [] : await furtherFindings(connection, node, info, demands, call)),
    ].filter((finding) => finding !== null)
    for (const finding of ofNode) findings.push({ ...finding, what: `${node.label}: ${finding.what}` })
  }
  return findings
}

/** Null where it is not permitted. */
async function infoOf(node: RedisNode, call: Call): Promise<string | null> {
  const info = await ifPermitted(node.send(['INFO'], call.signal))
  return info === null ? null : String(info)
}

async function concernsOf(
  node: RedisNode,
  info: string | null,
  { isFenced }: ServerDemands,
  { signal }: Call,
): Promise<Concern[]> {
  const forgets = isFenced && info !== null && (await forgetsAtRestart(node, info, signal))
  return [
    info === null ? unchecked('INFO', 'its version and role') : null,
    await evictionConcern(node, signal),
    forgets ? persistence('warning') : null,
  ].filter((concern) => concern !== null)
}

/** What is good to know, and not told at start. */
async function furtherFindings(
  connection: RedisConnection,
  node: RedisNode,
  info: string,
  demands: ServerDemands,
  { signal }: Call,
): Promise<(Finding | null)[]> {
  const forgets = !demands.isFenced && (await forgetsAtRestart(node, info, signal))
  const fsync = demands.waitFor?.aof ? '' : await settingOf(node, 'appendfsync', signal)
  return [
    forgets ? persistence('note') : null,
    fsyncOf(info, fsync ?? ''),
    replicationOf(info, demands),
    memoryOf(info),
    idleTimeoutOf((await settingOf(node, 'timeout', signal)) ?? ''),
    demands.isFenced && !connection.isCluster
      ? clockOf(await aheadOfClockMs(node, connection.keyPrefix + TOKEN_KEY, signal))
      : null,
  ]
}

/** False where it cannot be known. */
async function forgetsAtRestart(node: RedisNode, info: string, signal: AbortSignal): Promise<boolean> {
  return infoField(info, 'aof_enabled') === '0' && (await settingOf(node, 'save', signal)) === ''
}

function persistence(severity: 'warning' | 'note'): Concern {
  return {
    code: 'HOLDFAST_REDIS_PERSISTENCE',
    severity,
    what: 'it has neither an append-only file nor snapshots.',
    why:
      'A restart forgets all leases and the last token: every name is free while its holder believes to have it, and if the ' +
      'clock has been set back as well, tokens are issued twice.',
    fix: 'Set appendonly yes, or save.',
  }
}

function fsyncOf(info: string, appendfsync: string): Finding | null {
  if (infoField(info, 'aof_enabled') !== '1' || appendfsync === 'always' || appendfsync === '') return null
  return {
    code: 'HOLDFAST_REDIS_FSYNC',
    severity: 'note',
    what: `appendfsync is ${appendfsync}.`,
    why: 'A machine that crashes may forget the last grants, of about a second or more, while their holders believe in them.',
    fix: 'Guard what must not be written twice, use waitAof, or set appendfsync always.',
  }
}

function replicationOf(info: string, { waitFor }: ServerDemands): Finding | null {
  const replicas = Number(infoField(info, 'connected_slaves'))
  if (!(replicas > 0) || waitFor !== null) return null
  return {
    code: 'HOLDFAST_REDIS_REPLICATION',
    severity: 'note',
    what: `it has ${replicas} replica${replicas === 1 ? '' : 's'}, and answers before they have a grant.`,
    why: 'A replica that takes over may not know the last grants, and gives their names to others.',
    fix: 'Guard what must not be written twice; waitReplicas makes it less likely.',
  }
}

function memoryOf(info: string): Finding | null {
  const [used, max] = [Number(infoField(info, 'used_memory')), Number(infoField(info, 'maxmemory'))]
  if (!(max > 0) || used < FULL_SHARE * max) return null
  return {
    code: 'HOLDFAST_REDIS_MEMORY',
    severity: 'warning',
    what: `its memory is full to ${Math.floor((100 * used) / max)} % of maxmemory.`,
    why: 'When it is full, no new lock is granted, or, with a policy that evicts, locks are removed.',
    fix: 'Raise maxmemory, remove what is not needed, or use a server of its own for locks.',
  }
}

function idleTimeoutOf(timeout: string): Finding | null {
  if (timeout === '' || timeout === '0') return null
  return {
    code: 'HOLDFAST_REDIS_IDLE_TIMEOUT',
    severity: 'note',
    what: `it closes connections that were idle for ${timeout} s (timeout).`,
    why: 'A call that leaves at that moment has an unknown outcome, and is slower by a new connection.',
    fix: 'Set timeout 0, and let tcp-keepalive find dead connections.',
  }
}

function clockOf(aheadMs: number): Finding | null {
  if (aheadMs <= CLOCK_TOLERANCE_MS) return null
  return {
    code: 'HOLDFAST_REDIS_CLOCK',
    severity: 'warning',
    what: `its clock is ${Math.round(aheadMs)} ms behind the last token.`,
    why:
      'It was set back, or another server with a slower clock has become the primary. Tokens go on increasing only while the ' +
      'mark of the last one is kept.',
    fix: 'Correct the clock.',
  }
}

/** By how much the last token is ahead of the server's clock. */
async function aheadOfClockMs(node: RedisNode, tokenKey: string, signal: AbortSignal): Promise<number> {
  const mark = await ifPermitted(node.send(['GET', tokenKey], signal).catch(noneIfOtherType))
  const time = await ifPermitted(node.send(['TIME'], signal))
  if (mark === null || !Array.isArray(time)) return 0
  const [seconds, microseconds] = time.map(Number)
  return Number(mark) / 1_000 - ((seconds ?? 0) * 1_000 + (microseconds ?? 0) / 1_000)
}

/** Grants say what is wrong with it. */
function noneIfOtherType(error: Error): null {
  if (/WRONGTYPE/.test(error.message)) return null
  throw error
}
