/**
 * A client for a URL, made with whichever of the two libraries is installed. Only `open.ts` may load them, so it hands
 * over how.
 */
import { InvalidArgumentError } from '../../base/errors.ts'
import { ifInstalled, noneInstalled } from '../if-installed.ts'
import { endWithin } from './ending.ts'
import { standbyNotices } from './notices.ts'
import type { PgPool, PostgresClient, PostgresJs } from './types.ts'

export interface PostgresLibraries {
  pg(): Promise<unknown>
  postgres(): Promise<unknown>
}

export interface OpenedPostgresClient {
  readonly client: PostgresClient
  end(): Promise<void>
}

/** What the libraries take in a connection string; everything else in it is ours, or a mistake. */
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

/** A server that has not welcomed a new connection by then counts as unreachable. Both libraries could wait without an end. */
const CONNECT_WITHIN_SECONDS = 10

/** `location` as in `//user:password@host:port/database`. */
export async function postgresClientFromUrl(
  location: string,
  parameters: ReadonlyMap<string, string>,
  libraries: PostgresLibraries,
  connections = CONNECTIONS,
): Promise<OpenedPostgresClient> {
  // Not shown: it may hold a password.
  if (!/^\/\/([^@/]*@)?[^@/]*(\/[^/]*)?$/.test(location) || !URL.canParse(`postgres:${location}`))
    throw new InvalidArgumentError(
      'url',
      'must be postgres://host:port/database, with user:password@ in front of the host if needed.',
    )
  const connectSeconds = checkConnectTimeout(parameters.get('connect_timeout'))
  const passedOn = connectionParameters.flatMap((key) => {
    if (key === 'connect_timeout') return []
    const value = parameters.get(key)
    return value === undefined ? [] : [[key, value] as [string, string]]
  })
  const query = new URLSearchParams(passedOn).toString()
  const url = `postgres:${location}${query === '' ? '' : `?${query}`}`
  const pg = (await ifInstalled(libraries.pg)) as PgModule | null
  if (pg !== null) {
    const { Pool, Client } = pg.Pool === undefined ? (pg.default ?? {}) : pg
    if (Pool !== undefined && Client !== undefined)
      return withPg(Pool, Client, url, { connections, connectSeconds })
  }
  const postgres = (await ifInstalled(libraries.postgres)) as PostgresModule | null
  if (postgres !== null) return withPostgresJs(postgres.default, url, { connections, connectSeconds })
  throw noneInstalled('postgres', ['pg', 'postgres'])
}

/** In seconds, as libpq has it. */
function checkConnectTimeout(value: string | undefined): number {
  const seconds = value === undefined ? CONNECT_WITHIN_SECONDS : Number(value)
  if (!Number.isInteger(seconds) || seconds < 1 || seconds > 600 || value === '')
    throw new InvalidArgumentError('connect_timeout', 'must be a whole number of seconds from 1 to 600.')
  return seconds
}

interface Limits {
  readonly connections: number
  readonly connectSeconds: number
}

type PoolClass = new (options: object) => PgPool

/** With the inside of it, which has its own end, also before it is connected. */
type ClientClass = new (
  options: object,
) => { readonly connection?: { once?(event: 'end', listener: () => void): unknown } }

interface PgModule {
  readonly Pool?: PoolClass
  readonly Client?: ClientClass
  readonly default?: { readonly Pool?: PoolClass; readonly Client?: ClientClass }
}

interface PostgresModule {
  readonly default: (url: string, options: object) => PostgresJs
}

function withPg(Pool: PoolClass, Client: ClientClass, url: string, limits: Limits): OpenedPostgresClient {
  /** All that there are, also those that the pool has not been told of, because they are being opened. */
  const open = new Set<unknown>()
  class Remembered extends Client {
    constructor(options: object) {
      super(options)
      open.add(this)
      this.connection?.once?.('end', () => open.delete(this))
    }
  }
  const pool = new Pool({
    Client: Remembered,
    connectionString: url,
    max: limits.connections,
    allowExitOnIdle: true,
    keepAlive: true,
    connectionTimeoutMillis: limits.connectSeconds * 1_000,
  })
  // It outlives the adapter's own listener while it is being closed.
  pool.on('error', () => {})
  return {
    client: pool,
    end: () =>
      endWithin(
        () => pool.end(),
        () => open,
      ),
  }
}

function withPostgresJs(
  postgres: PostgresModule['default'],
  url: string,
  limits: Limits,
): OpenedPostgresClient {
  // It would ask for array types by itself on every new connection, and nobody would catch the failure of that (T51).
  const client = postgres(url, {
    max: limits.connections,
    prepare: false,
    fetch_types: false,
    onnotice: standbyNotices(),
    connect_timeout: limits.connectSeconds,
  })
  return { client, end: () => client.end({ timeout: 1 }) }
}
