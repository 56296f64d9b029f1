/**
 * What a server must be, looked at before the first session. What is certainly wrong is refused; what may cost
 * guarantees is told as a `warning` event, and so is what could not be looked at.
 */

import {
  type Concern,
  evictionConcern,
  ifPermitted,
  isDenied,
  isOlder,
  OLDEST_REDIS,
  type RedisConnection,
  type RedisNode,
  settingOf,
} from '../../clients/redis/index.ts'
import { UnsupportedError } from '../../core/errors.ts'
import { warn } from '../../core/events.ts'
import type { Call } from '../../spi.ts'

/** `WAITAOF` came with it. */
const OLDEST_WITH_WAITAOF = [7, 2] as const

export interface ServerDemands {
  readonly namespace: string
  readonly waitsForAof: boolean
  readonly isFenced: boolean
}

export async function checkServer(
  connection: RedisConnection,
  demands: ServerDemands,
  call: Call,
): Promise<void> {
  await connection.reach(call.signal)
  await connection.checkDatabase(call.signal)
  for (const node of await connection.nodes(call.signal)) await checkNode(node, demands, call)
}

async function checkNode(node: RedisNode, demands: ServerDemands, call: Call): Promise<void> {
  const tell = ({ code, warning }: Concern) => {
    const { namespace } = demands
    warn({ backend: 'redis', namespace, code, warning: `${node.label}: ${warning}` })
  }
  const info = await ifPermitted(node.send(['INFO'], call.signal))
  if (info === null)
    tell({
      code: 'HOLDFAST_REDIS_UNCHECKED',
      warning: 'INFO is not permitted, so neither version nor role of the server could be checked',
    })
  else {
    const refusal = refusalOf(String(info), demands)
    if (refusal !== null) throw new UnsupportedError(`redis: ${node.label} ${refusal}`)
  }
  const eviction = await evictionConcern(node, call.signal)
  if (eviction !== null) tell(eviction)
  if (demands.isFenced && (await forgetsAtRestart(node, String(info), call.signal)))
    tell({
      code: 'HOLDFAST_REDIS_PERSISTENCE',
      warning:
        'it has neither an append-only file nor snapshots, so a restart forgets all leases and the last token: every ' +
        'name is free while its holder believes to have it, and if the clock has been set back as well, tokens are ' +
        'issued twice. Set appendonly yes, or save',
    })
}

/** False where it cannot be known. */
async function forgetsAtRestart(node: RedisNode, info: string, signal: AbortSignal): Promise<boolean> {
  return /^aof_enabled:0/m.test(info) && (await settingOf(node, 'save', signal)) === ''
}

/** Why a server with this INFO cannot be used; null if it can. */
export function refusalOf(info: string, { waitsForAof }: Pick<ServerDemands, 'waitsForAof'>): string | null {
  const version = /^redis_version:(\S+)/m.exec(info)?.[1] ?? ''
  if (isOlder(version, OLDEST_REDIS))
    return `runs Redis ${version}; ${OLDEST_REDIS.join('.')} or newer is needed.`
  if (waitsForAof && isOlder(version, OLDEST_WITH_WAITAOF))
    return `runs Redis ${version}, which has no WAITAOF; waitAof needs ${OLDEST_WITH_WAITAOF.join('.')} or newer.`
  if (/^role:slave/m.test(info))
    return 'is a replica, which can neither grant nor renew. Connect to the primary, or through Sentinel.'
  return null
}

/** What was denied is told as what it means for locks. */
export function withoutRights(what: string, error: unknown): unknown {
  if (!isDenied(error)) return error
  return new UnsupportedError(
    `redis: ${what} is denied to this user of the server, and locks cannot do without. ${(error as Error).message}`,
    { cause: error },
  )
}
