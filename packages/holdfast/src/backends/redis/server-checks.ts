/**
 * What a server must be, looked at before the first session. What is certainly wrong is refused; what may cost
 * guarantees is told as a `warning` event, and so is what could not be looked at.
 */

import type { RedisConnection, RedisNode, RedisReply } from '../../clients/redis/index.ts'
import { isHoldfastError, UnsupportedError } from '../../core/errors.ts'
import { emit, hasListeners } from '../../core/events.ts'
import type { Call } from '../../spi.ts'

/** Scripts, `SET … PX` and `EXISTS` of several keys are older; 6.2 is the oldest that anybody still maintains. */
const OLDEST = [6, 2] as const
/** `WAITAOF` came with it. */
const OLDEST_WITH_WAITAOF = [7, 2] as const

export interface ServerDemands {
  readonly namespace: string
  readonly waitsForAof: boolean
}

export async function checkServer(
  connection: RedisConnection,
  demands: ServerDemands,
  call: Call,
): Promise<void> {
  for (const node of await connection.nodes(call.signal)) await checkNode(node, demands, call)
}

async function checkNode(node: RedisNode, demands: ServerDemands, call: Call): Promise<void> {
  const warn = (warning: string) => {
    const { namespace } = demands
    if (hasListeners('warning'))
      emit('warning', { backend: 'redis', namespace, warning: `${node.label}: ${warning}` })
  }
  const info = await ifPermitted(node.send(['INFO'], call.signal))
  if (info === null) warn('INFO is not permitted, so neither version nor role of the server could be checked')
  else {
    const refusal = refusalOf(String(info), demands)
    if (refusal !== null) throw new UnsupportedError(`redis: ${node.label} ${refusal}`)
  }
  const policy = await ifPermitted(node.send(['CONFIG', 'GET', 'maxmemory-policy'], call.signal))
  if (policy === null)
    warn('CONFIG GET is not permitted, so it could not be checked that maxmemory-policy is noeviction')
  else {
    const warning = evictionWarning(policyOf(policy))
    if (warning !== null) warn(warning)
  }
}

/** Why a server with this INFO cannot be used; null if it can. */
export function refusalOf(info: string, { waitsForAof }: Pick<ServerDemands, 'waitsForAof'>): string | null {
  const version = /^redis_version:(\S+)/m.exec(info)?.[1] ?? ''
  if (isOlder(version, OLDEST)) return `runs Redis ${version}; ${OLDEST.join('.')} or newer is needed.`
  if (waitsForAof && isOlder(version, OLDEST_WITH_WAITAOF))
    return `runs Redis ${version}, which has no WAITAOF; waitAof needs ${OLDEST_WITH_WAITAOF.join('.')} or newer.`
  if (/^role:slave/m.test(info))
    return 'is a replica, which can neither grant nor renew. Connect to the primary, or through Sentinel.'
  return null
}

/** Why a maxmemory-policy can cost locks; null if it cannot. */
export function evictionWarning(policy: string): string | null {
  if (policy === 'noeviction' || policy === '') return null
  return (
    `maxmemory-policy is ${policy}: when memory runs short, Redis may remove lock keys, and two may hold one name. ` +
    'Use noeviction, or a server of its own for locks'
  )
}

function isOlder(version: string, [major, minor]: readonly [number, number]): boolean {
  const [, itsMajor, itsMinor] = /^(\d+)\.(\d+)/.exec(version) ?? []
  if (itsMajor === undefined) return false
  return Number(itsMajor) < major || (Number(itsMajor) === major && Number(itsMinor) < minor)
}

/** A list of pairs, or an object or map where the client speaks RESP3. */
function policyOf(reply: RedisReply | object): string {
  if (Array.isArray(reply)) return String(reply[1] ?? '')
  if (reply instanceof Map) return String(reply.get('maxmemory-policy') ?? '')
  return String((reply as Record<string, unknown> | null)?.['maxmemory-policy'] ?? '')
}

/** Null where the user of the connection may not do this; other failures are failures. */
async function ifPermitted(asked: Promise<RedisReply>): Promise<RedisReply> {
  try {
    return await asked
  } catch (error) {
    if (isDenied(error)) return null
    throw error
  }
}

export function isDenied(error: unknown): boolean {
  return isHoldfastError(error) && /NOPERM|unknown command/i.test(error.message)
}

/** What was denied is told as what it means for locks. */
export function withoutRights(what: string, error: unknown): unknown {
  if (!isDenied(error)) return error
  return new UnsupportedError(
    `redis: ${what} is denied to this user of the server, and locks cannot do without. ${(error as Error).message}`,
    { cause: error },
  )
}
