/** How a server is set up, as far as its users may ask; above all whether it may remove keys when its memory runs short. */
import { isHoldfastError } from '../../core/errors.ts'
import type { HoldfastEvents } from '../../core/events.ts'
import type { RedisNode } from './connection.ts'
import type { RedisReply } from './raw.ts'

/** Something about a server that can cost locks, as the `warning` event has it. */
export type Concern = Pick<HoldfastEvents['warning'], 'code' | 'warning'>

/** What is to be told of this server's maxmemory-policy, in a sentence; null if all is well. */
export async function evictionConcern(node: RedisNode, signal?: AbortSignal): Promise<Concern | null> {
  const policy = await settingOf(node, 'maxmemory-policy', signal)
  if (policy === null)
    return {
      code: 'HOLDFAST_REDIS_UNCHECKED',
      warning: 'CONFIG GET is not permitted, so it could not be checked that maxmemory-policy is noeviction',
    }
  const warning = evictionWarning(policy)
  return warning === null ? null : { code: 'HOLDFAST_REDIS_EVICTION', warning }
}

/** Why a maxmemory-policy can cost locks; null if it cannot. */
export function evictionWarning(policy: string): string | null {
  if (policy === 'noeviction' || policy === '') return null
  return (
    `maxmemory-policy is ${policy}: when memory runs short, Redis may remove lock keys, and two may hold one name. ` +
    'Use noeviction, or a server of its own for locks'
  )
}

/** Null where the user of the connection may not ask; empty where the server has no such setting. */
export async function settingOf(node: RedisNode, name: string, signal?: AbortSignal): Promise<string | null> {
  const reply: RedisReply | object = await ifPermitted(node.send(['CONFIG', 'GET', name], signal))
  if (reply === null) return null
  // A list of pairs, or an object or map where the client speaks RESP3.
  if (Array.isArray(reply)) return String(reply[1] ?? '')
  if (reply instanceof Map) return String(reply.get(name) ?? '')
  return String((reply as Record<string, unknown>)[name] ?? '')
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
