/** Opens a locker from a URL, so that moving to another engine is a change of configuration. */
import type { PostgresOptions } from './backends/postgres/index.ts'
import type { PostgresAdvisoryOptions } from './backends/postgres-advisory/index.ts'
import type { RedisOptions } from './backends/redis/index.ts'
import type { RedlockOptions } from './backends/redlock/index.ts'
import { InvalidArgumentError, quote, UnsupportedError } from './base/errors.ts'
import { checkIntegerText, checkKnownOptions, checkOneOf } from './base/options.ts'
import type { AnyLocker, Locker } from './base/types.ts'
import { createLocker, type LockerOptions } from './locker/locker.ts'
import type { Backend, Fencing } from './spi.ts'

export interface OpenLockerOptions extends LockerOptions {
  /** Refuses to start on a backend that does not promise this (G12). */
  readonly require?: Requirement | readonly Requirement[]
}

export type Requirement = 'fenced' | 'cluster'

type RequiresFencing = {
  readonly require:
    | 'fenced'
    | readonly ['fenced']
    | readonly ['fenced', 'cluster']
    | readonly ['cluster', 'fenced']
}

/** Query parameters that every backend takes. */
const commonParameters = ['namespace', 'issuer', 'epoch']

/** Schemes, each with the way to its backend; a backend is loaded only when it is asked for. */
const openers: Record<string, (url: LockerUrl) => Promise<Backend<Fencing>>> = {
  memory: openMemory,
  sqlite: openSqlite,
  redis: openRedis,
  rediss: openRedis,
  redlock: openRedlock,
  postgres: openPostgres,
  postgresql: openPostgres,
  'postgres+advisory': openPostgresAdvisory,
}

/**
 * `memory:`, `memory:shared-name`, `sqlite:path/to/file.db`, `redis://host:port`, `redlock://a,b,c` or
 * `postgres://host:port/database`, with options as query parameters: `?namespace=…&issuer=…&epoch=…`.
 *
 * The locker keeps the process alive only while a call is pending. With postgres.js it does until it is closed, because that
 * library has no documented way to let a process end while a connection is open.
 */
export function openLocker(
  url: string,
  options: OpenLockerOptions & RequiresFencing,
): Promise<Locker<'fenced'>>
export function openLocker(url: string, options?: OpenLockerOptions): Promise<AnyLocker>
export async function openLocker(url: string, options: OpenLockerOptions = {}): Promise<AnyLocker> {
  checkKnownOptions('options', options, ['require', 'ttlMs', 'waitMs', 'holder', 'callTimeoutMs'])
  const { require = [], ...lockerOptions } = options
  const requirements = [require]
    .flat()
    .map((each) => checkOneOf<Requirement>('require', each, ['fenced', 'cluster']))
  const backend = await openBackend(url)
  try {
    for (const requirement of requirements) checkRequirement(backend, requirement)
    return createLocker(backend, lockerOptions) as AnyLocker
  } catch (error) {
    await backend[Symbol.asyncDispose]()
    throw error
  }
}

/** The backend itself, for tools that carry a session from one process to another (`attachSession`). Dispose of it. */
export async function openBackend(url: string): Promise<Backend<Fencing>> {
  const parsed = parseLockerUrl(url)
  return parsed.open(parsed)
}

function checkRequirement({ info }: Backend<Fencing>, requirement: Requirement): void {
  if (requirement === 'fenced' && info.fencing !== 'fenced')
    throw new UnsupportedError(
      `${info.name} issues no fencing tokens here, and require: 'fenced' was asked for. ` +
        (info.name === 'redis'
          ? 'Add ?fencing=clock-backed to the URL, or choose another engine.'
          : 'Choose another engine.'),
    )
  if (requirement === 'cluster' && info.scope !== 'cluster')
    throw new UnsupportedError(
      `${info.name} excludes within one ${info.scope} only, and require: 'cluster' was asked for. ` +
        'Choose an engine that all your machines can reach.',
    )
}

/** Optional peers (ADR 0009). */
type Peer = 'ioredis' | 'redis' | 'pg' | 'postgres'

/**
 * The name is a variable, and the comments are for webpack and Vite, so that bundlers leave the import alone. They would
 * fail on the peers that the program does not use, because those are not installed.
 */
function loadPeer(name: Peer): Promise<unknown> {
  return import(/* webpackIgnore: true */ /* @vite-ignore */ name)
}

interface LockerUrl {
  readonly scheme: string
  /** What stands between the scheme and the question mark, as it was written: each backend reads it in its own way. */
  readonly location: string
  readonly parameters: ReadonlyMap<string, string>
  readonly open: (url: LockerUrl) => Promise<Backend<Fencing>>
}

function parseLockerUrl(url: unknown): LockerUrl {
  if (typeof url !== 'string')
    throw new InvalidArgumentError('url', `must be a string such as 'sqlite:locks.db', not ${typeof url}.`)
  const [, written, rest = ''] = /^([a-z][a-z0-9+]*):(.*)$/is.exec(url) ?? []
  const scheme = written?.toLowerCase()
  const known = Object.keys(openers).map((each) => `${each}:`)
  // Of an unknown URL only the scheme is shown: the rest may hold a password.
  if (scheme === undefined)
    throw new InvalidArgumentError(
      'url',
      `must start with a scheme (a file is written sqlite:locks.db); there are: ${known.join(', ')}.`,
    )
  const open = Object.hasOwn(openers, scheme) ? openers[scheme] : undefined
  if (open === undefined)
    throw new InvalidArgumentError(
      'url',
      `has the scheme ${quote(`${scheme}:`)}, which no backend answers to; there are: ${known.join(', ')}.`,
    )
  const [location = '', ...query] = rest.split('?')
  return { open, scheme, location, parameters: parseParameters(query.join('?')) }
}

/** The location as a path or a name, for engines that have no host. */
function withoutHost({ scheme, location }: LockerUrl): string {
  // memory://jobs would quietly be another engine than memory:jobs, and sqlite://locks.db a file in the root folder.
  if (/^\/\/(?!\/)/.test(location)) {
    // With an @ it was meant for another engine, and may hold a password.
    const rest = /@|^$/.test(location.slice(2)) ? '…' : location.slice(2)
    const meant = [`${scheme}:${rest}`, ...(rest.includes('/') ? [`${scheme}:/${rest}`] : [])]
    throw new InvalidArgumentError(
      'url',
      `must not have // after ${scheme}:, because there is no host to name; write ${meant.map(quote).join(' or ')}.`,
    )
  }
  try {
    return decodeURIComponent(location)
  } catch {
    throw new InvalidArgumentError('url', 'has a % that does not start an escape; write it as %25.')
  }
}

function parseParameters(query: string): ReadonlyMap<string, string> {
  const parameters = new Map<string, string>()
  for (const [key, value] of new URLSearchParams(query)) {
    if (parameters.has(key)) throw new InvalidArgumentError('url', `has the parameter ${quote(key)} twice.`)
    parameters.set(key, value)
  }
  return parameters
}

/** The parameters of every backend, checked; others than `own` are refused, because a misspelt one would be ignored. */
function commonOptions({ parameters }: LockerUrl, own: readonly string[]) {
  const known = [...commonParameters, ...own]
  for (const key of parameters.keys()) {
    if (!known.includes(key))
      throw new InvalidArgumentError(
        'url',
        `has the parameter ${quote(key)}, which is unknown; there are: ${known.join(', ')}.`,
      )
  }
  const namespace = parameters.get('namespace')
  const issuer = parameters.get('issuer')
  const epoch = parameters.get('epoch')
  return {
    ...(namespace !== undefined && { namespace }),
    ...(issuer !== undefined && { issuer }),
    ...(epoch !== undefined && {
      epoch: checkIntegerText('epoch', epoch, { min: 0 }),
    }),
  }
}

async function openMemory(url: LockerUrl): Promise<Backend<'fenced'>> {
  const { memory, sharedMemoryEngine } = await import('./backends/memory/index.ts')
  const options = commonOptions(url, [])
  const name = withoutHost(url)
  return memory(name === '' ? options : { ...options, engine: sharedMemoryEngine(name) })
}

async function openSqlite(url: LockerUrl): Promise<Backend<'fenced'>> {
  const { sqlite } = await import('./backends/sqlite/index.ts')
  // sqlite:file.db, sqlite:/var/lib/file.db and the usual sqlite:///var/lib/file.db name a file alike.
  const path = withoutHost(url).replace(/^\/\/(?=\/)/, '')
  if (path === '')
    throw new InvalidArgumentError(
      'url',
      "must name a file: 'sqlite:locks.db' or 'sqlite:/var/lib/locks.db'.",
    )
  const synchronous = url.parameters.get('synchronous')
  return sqlite({
    path,
    ...commonOptions(url, ['synchronous']),
    ...(synchronous !== undefined && {
      synchronous: checkOneOf('synchronous', synchronous, ['normal', 'full']),
    }),
  })
}

async function openRedis(url: LockerUrl): Promise<Backend<Fencing>> {
  const [{ openRedis }, { redisClientFromUrl }] = await Promise.all([
    import('./backends/redis/assemble.ts'),
    import('./clients/redis/index.ts'),
  ])
  const { parameters } = url
  const fencing = parameters.get('fencing')
  const count = parameters.get('waitReplicas')
  const waitTimeoutMs = parameters.get('waitTimeoutMs')
  if (count === undefined && waitTimeoutMs !== undefined)
    throw new InvalidArgumentError(
      'url',
      'has the parameter "waitTimeoutMs" without "waitReplicas": there is nothing to wait for.',
    )
  const options: Omit<RedisOptions, 'client'> = {
    ...commonOptions(url, ['fencing', 'waitReplicas', 'waitTimeoutMs']),
    ...(fencing !== undefined && { fencing: checkOneOf('fencing', fencing, ['clock-backed']) }),
    ...(count !== undefined && {
      waitReplicas: {
        count: checkIntegerText('waitReplicas', count, { min: 1 }),
        timeoutMs: checkIntegerText('waitTimeoutMs', waitTimeoutMs ?? '1000', { min: 1 }),
      },
    }),
  }
  const { client, close } = await redisClientFromUrl(url.scheme, url.location, {
    ioredis: () => loadPeer('ioredis'),
    redis: () => loadPeer('redis'),
  })
  try {
    return openRedis({ ...options, client }, { closeClient: close })
  } catch (error) {
    await close()
    throw error
  }
}

async function openRedlock(url: LockerUrl): Promise<Backend<'unfenced'>> {
  const [{ openRedlock }, { nodesFromUrl, optionsFromParameters, parameterNames }, { redisClientFromUrl }] =
    await Promise.all([
      import('./backends/redlock/assemble.ts'),
      import('./backends/redlock/from-url.ts'),
      import('./clients/redis/index.ts'),
    ])
  const options: Omit<RedlockOptions, 'clients'> = {
    ...commonOptions(url, parameterNames),
    ...optionsFromParameters(url.parameters),
  }
  const libraries = { ioredis: () => loadPeer('ioredis'), redis: () => loadPeer('redis') }
  const opened = await Promise.all(
    nodesFromUrl(url.location, url.parameters).map(({ scheme, location }) =>
      redisClientFromUrl(scheme, location, libraries, { mayBeDown: true }),
    ),
  )
  const closeClients = async () => void (await Promise.all(opened.map(({ close }) => close())))
  try {
    const backend = openRedlock({ ...options, clients: opened.map(({ client }) => client) }, { closeClients })
    await backend.reach()
    return backend
  } catch (error) {
    await closeClients()
    throw error
  }
}

async function openPostgres(url: LockerUrl): Promise<Backend<'fenced'>> {
  const [{ openPostgres }, { connectionParameters, postgresClientFromUrl }] = await Promise.all([
    import('./backends/postgres/assemble.ts'),
    import('./clients/postgres/index.ts'),
  ])
  const schema = url.parameters.get('schema')
  const options: Omit<PostgresOptions, 'client'> = {
    ...commonOptions(url, ['schema', ...connectionParameters]),
    ...(schema !== undefined && { schema }),
  }
  const libraries = { pg: () => loadPeer('pg'), postgres: () => loadPeer('postgres') }
  const { client, end } = await postgresClientFromUrl(url.location, url.parameters, libraries)
  try {
    return await openPostgres({ ...options, client }, { end })
  } catch (error) {
    await end()
    throw error
  }
}

async function openPostgresAdvisory(url: LockerUrl): Promise<Backend<'fenced'>> {
  const [{ openPostgresAdvisory, USUAL_MAX_CONNECTIONS }, { connectionParameters, postgresClientFromUrl }] =
    await Promise.all([
      import('./backends/postgres-advisory/assemble.ts'),
      import('./clients/postgres/index.ts'),
    ])
  const { parameters } = url
  const schema = parameters.get('schema')
  const key = parameters.get('key')
  const maxConnections = parameters.get('maxConnections')
  const options: Omit<PostgresAdvisoryOptions, 'client'> = {
    ...commonOptions(url, ['schema', 'key', 'maxConnections', ...connectionParameters]),
    ...(schema !== undefined && { schema }),
    ...(key !== undefined && { key: checkOneOf<'hashtext'>('key', key, ['hashtext']) }),
    ...(maxConnections !== undefined && {
      maxConnections: checkIntegerText('maxConnections', maxConnections, { min: 1 }),
    }),
  }
  const libraries = { pg: () => loadPeer('pg'), postgres: () => loadPeer('postgres') }
  // With postgres.js the connections for locks come out of the client's own, so it needs more of them.
  const connections = (options.maxConnections ?? USUAL_MAX_CONNECTIONS) + 1
  const { client, end } = await postgresClientFromUrl(url.location, parameters, libraries, connections)
  try {
    return await openPostgresAdvisory({ ...options, client }, { end })
  } catch (error) {
    await end()
    throw error
  }
}
