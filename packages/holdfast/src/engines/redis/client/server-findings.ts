/**
 * How a server is set up, as far as this user may ask: what matters for locks. A backend tells it in two ways: as a `warning`
 * event at start, and as a finding of `diagnose`.
 */
import { isHoldfastError } from '../../../base/errors.ts'
import type { WarningCode } from '../../../base/events.ts'
import type { Finding } from '../../../spi.ts'
import type { RedisNode } from './connection.ts'
import { isDenial } from './failures.ts'
import type { RedisReply } from './raw.ts'

/** A finding that is also told at start. */
export type Concern = Finding & { readonly code: WarningCode }

/** The finding as one text, without the last full stop, as the `warning` event has it. */
export function textOf({ what, why, fix }: Finding): string {
  return [what, why, fix].join(' ').replace(/\.$/, '')
}

/** Why a server with this INFO cannot be used; null if it can. */
export function refusalOf(info: string): Finding | null {
  const version = infoField(info, 'redis_version')
  if (isOlder(version, OLDEST_REDIS))
    return {
      code: 'HOLDFAST_REDIS_VERSION',
      severity: 'danger',
      what: `it runs Redis ${version}.`,
      why: `${OLDEST_REDIS.join('.')} or newer is needed.`,
      fix: 'Upgrade the server.',
    }
  if (infoField(info, 'role') === 'slave')
    return {
      code: 'HOLDFAST_REDIS_REPLICA',
      severity: 'danger',
      what: 'it is a replica.',
      why: 'A replica can neither grant nor renew.',
      fix: 'Connect to the primary, or through Sentinel.',
    }
  return null
}

/** The concern about this server's maxmemory-policy; null if all is well. */
export async function evictionConcern(node: RedisNode, signal?: AbortSignal): Promise<Concern | null> {
  const policy = await settingOf(node, 'maxmemory-policy', signal)
  return policy === null ? unchecked('CONFIG GET', 'maxmemory-policy') : evictionOf(policy)
}

export function unchecked(command: string, what: string): Concern {
  return {
    code: 'HOLDFAST_REDIS_UNCHECKED',
    severity: 'warning',
    what: `${command} is not permitted to this user, so ${what} could not be checked.`,
    why: 'A server that is set up wrongly for locks would not be noticed.',
    fix: `Permit it (ACL SETUSER <user> +${command.toLowerCase().replace(' ', '|')}), or look yourself.`,
  }
}

/** Null if this maxmemory-policy cannot cost locks. */
export function evictionOf(policy: string): Concern | null {
  if (policy === 'noeviction' || policy === '') return null
  return {
    code: 'HOLDFAST_REDIS_EVICTION',
    severity: 'danger',
    what: `maxmemory-policy is ${policy}.`,
    why: 'When memory runs short, Redis may remove lock keys, and two may hold one name.',
    fix: 'Use noeviction, or a server of its own for locks.',
  }
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

/** The line of an INFO that has this name; empty if there is none. */
export function infoField(info: string, name: string): string {
  return new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? ''
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
  return isHoldfastError(error) && (isDenial(error.message) || /unknown command/i.test(error.message))
}

/** The first two numbers of a server's version. */
export type RedisVersion = readonly [major: number, minor: number]

/** Scripts, `SET … PX` and `EXISTS` of several keys are older; 6.2 is the oldest that is still maintained. */
export const OLDEST_REDIS: RedisVersion = [6, 2]

/** True for an older version, as `INFO` tells it; a server that does not tell is taken as it is. */
export function isOlder(version: string, [major, minor]: RedisVersion): boolean {
  const [, itsMajor, itsMinor] = /^(\d+)\.(\d+)/.exec(version) ?? []
  if (itsMajor === undefined) return false
  return Number(itsMajor) < major || (Number(itsMajor) === major && Number(itsMinor) < minor)
}
