/**
 * A client for a URL, made with whichever of the two libraries is installed. Only `open.ts` may load them, so it hands
 * over how.
 */
import { systemClock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'
import { ifInstalled, noneInstalled } from '../../../kit/if-installed.ts'
import { standbyNotices } from './notices.ts'
import { PgSockets } from './pg-sockets.ts'
import type { PgPool, PostgresClient, PostgresJs } from './types.ts'

export interface PostgresLibraries {
  pg(): Promise<unknown>
  postgres(): Promise<unknown>
}

export interface OpenedPostgresClient<C extends PostgresClient = PostgresClient> extends OwnClient {
  readonly client: C
}

export interface OwnClient {
  /** How long the client waits for a connection. */
  readonly connectMs: number
  end(): Promise<void>
}

/** Parameters that the libraries take in a connection string; everything else in it is ours, or a mistake. */
export const connectionParameters = [
  'sslmode',
  'sslcert',
  'sslkey',
  'sslrootcert',
  'application_name',
  'connect_timeout',
] as const

/** Requests of one process share few connections, because they share calls. */
const CONNECTIONS = 4

/** A server that has not answered a new connection by then counts as unreachable. Both libraries could wait without an end. */
const CONNECT_WITHIN_SECONDS = defaults.callTimeoutMs / 1_000

/** `location` as in `//user:password@host:port/database`. */
export async function postgresClientFromUrl(
  location: string,
  parameters: ReadonlyMap<string, string>,
  libraries: PostgresLibraries,
): Promise<OpenedPostgresClient> {
  const target = targetOf(location, parameters)
  const Pool = await loadPool(libraries.pg)
  if (Pool !== null) return withPg(Pool, target)
  const postgres = (await ifInstalled(libraries.postgres)) as PostgresModule | null
  if (postgres !== null) return withPostgresJs(postgres.default, target)
  throw noneInstalled('postgres', ['pg', 'postgres'])
}

/** The same, only with `pg`. */
export async function poolFromUrl(
  location: string,
  parameters: ReadonlyMap<string, string>,
  pg: () => Promise<unknown>,
): Promise<OpenedPostgresClient<PgPool>> {
  const target = targetOf(location, parameters)
  const Pool = await loadPool(pg)
  if (Pool === null) throw noneInstalled('postgres+advisory', ['pg'])
  return withPg(Pool, target)
}

interface Target {
  readonly url: string
  readonly connectSeconds: number
}

function targetOf(location: string, parameters: ReadonlyMap<string, string>): Target {
  // The URL is not shown: it may hold a password.
  if (!/^\/\/([^@/]*@)?[^@/]*(\/[^/]*)?$/.test(location) || !URL.canParse(`postgres:${location}`))
    throw new InvalidArgumentError(
      'url',
      'must be postgres://host:port/database, with user:password@ in front of the host if needed.',
    )
  const passedOn = connectionParameters.flatMap((key) => {
    if (key === 'connect_timeout') return []
    const value = parameters.get(key)
    return value === undefined ? [] : [[key, value] as [string, string]]
  })
  const query = new URLSearchParams(passedOn).toString()
  const url = `postgres:${location}${query === '' ? '' : `?${query}`}`
  return { url, connectSeconds: checkConnectTimeout(parameters.get('connect_timeout')) }
}

/** Connect time-outs are in seconds, as libpq has them. */
function checkConnectTimeout(value: string | undefined): number {
  const seconds = value === undefined ? CONNECT_WITHIN_SECONDS : Number(value)
  if (!Number.isInteger(seconds) || seconds < 1 || seconds > 600 || value === '')
    throw new InvalidArgumentError('connect_timeout', 'must be a whole number of seconds from 1 to 600.')
  return seconds
}

type PoolClass = new (options: object) => PgPool

interface PgModule {
  readonly Pool?: PoolClass
  readonly default?: { readonly Pool?: PoolClass }
}

interface PostgresModule {
  readonly default: (url: string, options: object) => PostgresJs
}

async function loadPool(pg: () => Promise<unknown>): Promise<PoolClass | null> {
  const loaded = (await ifInstalled(pg)) as PgModule | null
  return loaded?.Pool ?? loaded?.default?.Pool ?? null
}

function withPg(Pool: PoolClass, { url, connectSeconds }: Target): OpenedPostgresClient<PgPool> {
  const sockets = new PgSockets(systemClock)
  const pool = new Pool({
    connectionString: url,
    max: CONNECTIONS,
    allowExitOnIdle: true,
    keepAlive: true,
    connectionTimeoutMillis: connectSeconds * 1_000,
    stream: sockets.create,
  })
  return { client: pool, connectMs: connectSeconds * 1_000, end: () => sockets.endWithin(() => pool.end()) }
}

/** postgres.js would wait for up to 20 s before it connects again, and so be back long after the server is. */
function reconnectSeconds(retries: number): number {
  return (0.5 + systemRandom.fraction() / 2) * Math.min(3 ** retries / 100, 1)
}

function withPostgresJs(
  postgres: PostgresModule['default'],
  { url, connectSeconds }: Target,
): OpenedPostgresClient {
  const client = postgres(url, {
    max: CONNECTIONS,
    // There may be a pooler in transaction mode.
    prepare: false,
    // postgres.js would ask for array types by itself on every new connection, and the failure of that could not be caught (T51, unheard errors).
    fetch_types: false,
    onnotice: standbyNotices(),
    connect_timeout: connectSeconds,
    backoff: reconnectSeconds,
  })
  return { client, connectMs: connectSeconds * 1_000, end: () => client.end({ timeout: 1 }) }
}
