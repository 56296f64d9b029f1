/** What `redlock://…` says: which nodes, and which options. */

import { InvalidArgumentError } from '../../base/errors.ts'
import { checkIntegerText, checkOneOf } from '../../base/options.ts'
import { partsOfLocation } from '../../clients/redis/index.ts'
import type { RedlockOptions } from './assemble.ts'

export const parameterNames = [
  'nodeTimeoutMs',
  'connectTimeoutMs',
  'quorum',
  'maxTtlMs',
  'persistence',
  'allowFewNodes',
  'tls',
] as const

export interface NodeUrl {
  readonly scheme: 'redis' | 'rediss'
  /** As in a URL, from the two slashes on. */
  readonly location: string
}

/**
 * `//user:password@a:6379,b:6379,c:6379/0`: the credentials in front and the database behind are those of every node.
 * With `tls=true` the nodes are spoken to like `rediss:`.
 */
export function nodesFromUrl(location: string, parameters: ReadonlyMap<string, string>): readonly NodeUrl[] {
  const parts = partsOfLocation(location)
  // Not shown: it may hold a password.
  if (parts === null)
    throw new InvalidArgumentError(
      'url',
      'must be redlock://a:6379,b:6379,c:6379, with user:password@ in front and /database behind if all nodes have the same.',
    )
  const scheme = flag('tls', parameters) ? 'rediss' : 'redis'
  const { credentials, hosts, database } = parts
  return hosts.map((host) => {
    if (host === '') throw new InvalidArgumentError('url', 'has an empty node between two commas.')
    return { scheme, location: `//${credentials}${host}${database}` }
  })
}

export function optionsFromParameters(
  parameters: ReadonlyMap<string, string>,
): Omit<RedlockOptions, 'clients'> {
  for (const name of ['issuer', 'epoch'])
    if (parameters.has(name))
      throw new InvalidArgumentError(
        'url',
        `has the parameter "${name}", and redlock issues no tokens: leave it out.`,
      )
  const persistence = parameters.get('persistence')
  return {
    ...number('nodeTimeoutMs', parameters),
    ...number('connectTimeoutMs', parameters),
    ...number('quorum', parameters),
    ...number('maxTtlMs', parameters),
    ...(persistence !== undefined && {
      persistence: checkOneOf('persistence', persistence, ['none', 'every-write']),
    }),
    ...(parameters.has('allowFewNodes') && { allowFewNodes: flag('allowFewNodes', parameters) }),
  }
}

function number(name: string, parameters: ReadonlyMap<string, string>): object {
  const text = parameters.get(name)
  if (text === undefined) return {}
  return { [name]: checkIntegerText(name, text, { min: 1 }) }
}

function flag(name: string, parameters: ReadonlyMap<string, string>): boolean {
  return checkOneOf(name, parameters.get(name) ?? 'false', ['true', 'false']) === 'true'
}
