/** Reads `redlock://…`: which nodes, and which options. */

import { InvalidArgumentError } from '../../../base/errors.ts'
import { loadPeer } from '../../../base/load-peer.ts'
import { asCount, asFlag, asOneOf, type LockerUrl, onOwnClient } from '../../../kit/url.ts'
import type { Backend } from '../../../spi.ts'
import { partsOfLocation, redisClientFromUrl } from '../client/index.ts'
import { openRedlock, type RedlockOptions } from './assemble.ts'

type Parameters = Pick<
  RedlockOptions,
  'nodeTimeoutMs' | 'connectTimeoutMs' | 'quorum' | 'maxTtlMs' | 'persistence' | 'allowFewNodes'
> & { readonly tls?: boolean }

export async function openFromUrl(url: LockerUrl): Promise<Backend<'unfenced'>> {
  for (const name of ['issuer', 'epoch'])
    if (url.parameters.has(name))
      throw new InvalidArgumentError(
        'url',
        `has the parameter "${name}", and redlock issues no tokens: leave it out.`,
      )
  const { tls = false, ...options } = url.options<Parameters>({
    nodeTimeoutMs: asCount,
    connectTimeoutMs: asCount,
    quorum: asCount,
    maxTtlMs: asCount,
    persistence: asOneOf('none', 'every-write'),
    allowFewNodes: asFlag,
    tls: asFlag,
  })
  const libraries = { ioredis: () => loadPeer('ioredis'), redis: () => loadPeer('redis') }
  const opened = await Promise.all(
    nodesFromUrl(url.location, tls).map(({ scheme, location }) =>
      redisClientFromUrl(scheme, location, libraries, { mayBeDown: true }),
    ),
  )
  const closeClients = async () => void (await Promise.all(opened.map(({ close }) => close())))
  return onOwnClient(closeClients, async () => {
    const backend = openRedlock({ ...options, clients: opened.map(({ client }) => client) }, { closeClients })
    await backend.reach()
    return backend
  })
}

interface NodeUrl {
  readonly scheme: 'redis' | 'rediss'
  /** As in a URL, from the two slashes on. */
  readonly location: string
}

/**
 * `//user:password@a:6379,b:6379,c:6379/0`: the credentials in front and the database behind are those of every node.
 * With `tls=true` the nodes are spoken to like `rediss:`.
 */
export function nodesFromUrl(location: string, isTls = false): readonly NodeUrl[] {
  const parts = partsOfLocation(location)
  // Not shown: it may hold a password.
  if (parts === null)
    throw new InvalidArgumentError(
      'url',
      'must be redlock://a:6379,b:6379,c:6379, with user:password@ in front and /database behind if all nodes have the same.',
    )
  const scheme = isTls ? 'rediss' : 'redis'
  const { credentials, hosts, database } = parts
  return hosts.map((host) => {
    if (host === '') throw new InvalidArgumentError('url', 'has an empty node between two commas.')
    return { scheme, location: `//${credentials}${host}${database}` }
  })
}
