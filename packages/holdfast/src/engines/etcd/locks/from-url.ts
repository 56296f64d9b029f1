/** `etcd://user:password@a:2379,b:2379,c:2379`, or `etcds://` for TLS. Certificates are files. */
import { readFile } from 'node:fs/promises'
import { InvalidArgumentError } from '../../../base/errors.ts'
import { asText, type LockerUrl } from '../../../kit/url.ts'
import type { Backend } from '../../../spi.ts'
import { openEtcd } from './assemble.ts'

interface Files {
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
}

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const { ca, cert, key, ...options } = url.options<Files>({ ca: asText, cert: asText, key: asText })
  const [, user, password, hosts] = /^\/\/(?:([^:@/]*)(?::([^@/]*))?@)?([^@/]+)\/?$/.exec(url.location) ?? []
  // The URL is not shown: it may hold a password.
  if (hosts === undefined)
    throw new InvalidArgumentError(
      'url',
      'must be etcd://a:2379,b:2379,c:2379, with user:password@ in front if needed.',
    )
  const isSecure = url.scheme === 'etcds'
  const files = { ca, cert, key }
  if (!isSecure && Object.values(files).some((file) => file !== undefined))
    throw new InvalidArgumentError('url', 'has a certificate and no TLS: write etcds:// instead of etcd://.')
  const tls: Record<string, Buffer> = {}
  for (const [name, file] of Object.entries(files)) if (file !== undefined) tls[name] = await readFile(file)
  return openEtcd({
    ...options,
    hosts: hosts.split(',').map((host) => `${isSecure ? 'https' : 'http'}://${withPort(host)}`),
    ...(isSecure && { tls }),
    ...(user && { username: decodeURIComponent(user), password: decodeURIComponent(password ?? '') }),
  })
}

function withPort(host: string): string {
  return /:\d+$/.test(host) ? host : `${host}:2379`
}
