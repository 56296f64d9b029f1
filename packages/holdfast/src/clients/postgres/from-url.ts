/**
 * A client for a URL, made with whichever of the two libraries is installed. Only `open.ts` may load them, so it hands
 * over how.
 */
import { InvalidArgumentError, UnsupportedError } from '../../core/errors.ts'
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
] as const

/** Requests of one process share few connections, because they share calls. */
const CONNECTIONS = 4

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
  const passedOn = connectionParameters.flatMap((key) => {
    const value = parameters.get(key)
    return value === undefined ? [] : [[key, value] as [string, string]]
  })
  const query = new URLSearchParams(passedOn).toString()
  const url = `postgres:${location}${query === '' ? '' : `?${query}`}`
  const pg = (await ifInstalled(libraries.pg)) as PgModule | null
  if (pg !== null) {
    const Pool = pg.Pool ?? pg.default?.Pool
    if (Pool !== undefined) return withPg(Pool, url, connections)
  }
  const postgres = (await ifInstalled(libraries.postgres)) as PostgresModule | null
  if (postgres !== null) return withPostgresJs(postgres.default, url, connections)
  throw new UnsupportedError(
    'postgres: needs a client library to connect with. Install one of them: npm install pg, or npm install postgres.',
  )
}

type PoolClass = new (
  options: object,
) => PgPool & { on(event: 'connect' | 'remove', listener: (connection: unknown) => void): unknown }

interface PgModule {
  readonly Pool?: PoolClass
  readonly default?: { readonly Pool?: PoolClass }
}

interface PostgresModule {
  readonly default: (url: string, options: object) => PostgresJs
}

function withPg(Pool: PoolClass, url: string, max: number): OpenedPostgresClient {
  const pool = new Pool({ connectionString: url, max, allowExitOnIdle: true, keepAlive: true })
  // It outlives the adapter's own listener while it is being closed.
  pool.on('error', () => {})
  const open = new Set<unknown>()
  pool.on('connect', (connection) => void open.add(connection))
  pool.on('remove', (connection) => void open.delete(connection))
  return {
    client: pool,
    end: () =>
      endWithin(
        () => pool.end(),
        () => open,
      ),
  }
}

function withPostgresJs(postgres: PostgresModule['default'], url: string, max: number): OpenedPostgresClient {
  // It would ask for array types by itself on every new connection, and nobody would catch the failure of that (T51).
  const client = postgres(url, { max, prepare: false, fetch_types: false, onnotice: standbyNotices() })
  return { client, end: () => client.end({ timeout: 1 }) }
}

async function ifInstalled(load: () => Promise<unknown>): Promise<unknown> {
  try {
    return await load()
  } catch (error) {
    if ((error as { code?: unknown }).code === 'ERR_MODULE_NOT_FOUND') return null
    throw error
  }
}
