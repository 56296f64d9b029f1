/** Whether a server may remove keys by itself when its memory runs short. */
import { isHoldfastError } from '../../core/errors.ts'
import type { RedisNode } from './connection.ts'
import type { RedisReply } from './raw.ts'

/** What is to be told of this server's maxmemory-policy, in a sentence; null if all is well. */
export async function evictionConcern(node: RedisNode, signal?: AbortSignal): Promise<string | null> {
  const policy = await ifPermitted(node.send(['CONFIG', 'GET', 'maxmemory-policy'], signal))
  return policy === null
    ? 'CONFIG GET is not permitted, so it could not be checked that maxmemory-policy is noeviction'
    : evictionWarning(policyOf(policy))
}

/** Why a maxmemory-policy can cost locks; null if it cannot. */
export function evictionWarning(policy: string): string | null {
  if (policy === 'noeviction' || policy === '') return null
  return (
    `maxmemory-policy is ${policy}: when memory runs short, Redis may remove lock keys, and two may hold one name. ` +
    'Use noeviction, or a server of its own for locks'
  )
}

/** A list of pairs, or an object or map where the client speaks RESP3. */
function policyOf(reply: RedisReply | object): string {
  if (Array.isArray(reply)) return String(reply[1] ?? '')
  if (reply instanceof Map) return String(reply.get('maxmemory-policy') ?? '')
  return String((reply as Record<string, unknown> | null)?.['maxmemory-policy'] ?? '')
}

/** Null where the user of the connection may not do this; other failures are failures. */
export async function ifPermitted(asked: Promise<RedisReply>): Promise<RedisReply> {
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
