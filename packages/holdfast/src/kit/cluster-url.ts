/** URLs of clusters: `etcd://user:password@a:2379,b:2379`. With TLS, certificates are files that parameters name. */
import { InvalidArgumentError } from '../base/errors.ts'
import type { IdentityOptions } from './backend-kit.ts'
import { asText, type LockerUrl, type ReadParameter } from './url.ts'

export interface ClusterUrlTerms {
  readonly scheme: string
  readonly secureScheme: string
  readonly port: number
  /** Whether something may follow the hosts: `/path`. */
  readonly hasPath?: boolean
  readonly readFile: (path: string) => Promise<Buffer>
}

export interface ClusterAddress {
  /** Each with its port. */
  readonly hosts: readonly string[]
  readonly path: string
  readonly username?: string
  readonly password?: string
  /** Only with TLS. */
  readonly tls?: { readonly ca?: Buffer; readonly cert?: Buffer; readonly key?: Buffer }
}

interface Files {
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
}

/** `own`: the engine's own parameters. */
export async function clusterFromUrl<T extends object>(
  url: LockerUrl,
  { scheme, secureScheme, port, hasPath = false, readFile }: ClusterUrlTerms,
  own: { readonly [name in keyof T]-?: ReadParameter<Exclude<T[name], undefined>> },
): Promise<{ readonly address: ClusterAddress; readonly options: IdentityOptions & Partial<T> }> {
  const files = { ca: asText, cert: asText, key: asText }
  const { ca, cert, key, ...options } = url.options({ ...files, ...own } as typeof files) as Files &
    Partial<T>
  const [, user, secret = '', hosts, path = ''] =
    /^\/\/(?:([^:@/]*)(?::([^@/]*))?@)?([^@/]+)(\/.*)?$/.exec(url.location) ?? []
  // The URL is not shown: it may hold a password.
  if (hosts === undefined || (!hasPath && path.length > 1))
    throw new InvalidArgumentError(
      'url',
      `must be ${scheme}://a:${port},b:${port},c:${port}${hasPath ? '/path' : ''}, with user:password@ in front if needed.`,
    )
  const isSecure = url.scheme === secureScheme
  const given = Object.entries({ ca, cert, key }).filter(([, file]) => file !== undefined)
  if (!isSecure && given.length > 0)
    throw new InvalidArgumentError(
      'url',
      `has a certificate and no TLS: write ${secureScheme}:// instead of ${scheme}://.`,
    )
  const tls: Record<string, Buffer> = {}
  for (const [name, file = ''] of given)
    tls[name] = await readFile(file).catch((cause) => unreadable(name, file, cause))
  const credentials = { username: decoded(user ?? ''), password: decoded(secret) }
  return {
    address: {
      hosts: hosts.split(',').map((host) => (/:\d+$/.test(host) ? host : `${host}:${port}`)),
      path,
      ...(user !== undefined && user + secret !== '' && credentials),
      ...(isSecure && { tls }),
    },
    options: options as IdentityOptions & Partial<T>,
  }
}

function unreadable(name: string, file: string, cause: unknown): never {
  const why = (cause as { readonly code?: string } | null)?.code ?? 'not readable'
  throw new InvalidArgumentError('url', `has ?${name}=${file}, a file that cannot be read (${why}).`, {
    cause,
  })
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    // The cause would show the password.
    throw new InvalidArgumentError(
      'url',
      'has a % in its user or password that does not start an escape; write it as %25.',
    )
  }
}
