/** The two client libraries, as tests use them. */
import pg from 'pg'
import postgres from 'postgres'
import type { PostgresClient } from '../../src/backends/postgres/index.ts'

export interface OpenedClient extends AsyncDisposable {
  readonly client: PostgresClient
}

export interface ClientOptions {
  readonly max?: number
  /** False: postgres.js asks nothing by itself when it connects, which nobody would catch if it failed. */
  readonly fetchTypes?: boolean
  /** Settings of the server's session, as in `-c name=value`; not through a pooler. */
  readonly settings?: Readonly<Record<string, string>>
}

export interface ClientLibrary {
  readonly name: 'pg' | 'postgres.js'
  open(url: string, options?: ClientOptions): OpenedClient
}

export const withPg: ClientLibrary = {
  name: 'pg',
  open(url, { max = 10, settings = {} } = {}) {
    const options = Object.entries(settings).map(([key, value]) => `-c ${key}=${value}`)
    const pool = new pg.Pool({
      connectionString: url,
      max,
      ...(options.length > 0 && { options: options.join(' ') }),
    })
    return { client: pool, [Symbol.asyncDispose]: () => pool.end() }
  },
}

export const withPostgresJs: ClientLibrary = {
  name: 'postgres.js',
  open(url, { max = 10, settings = {}, fetchTypes = true } = {}) {
    const client = postgres(url, {
      fetch_types: fetchTypes,
      max,
      connection: { ...settings },
      onnotice: () => {},
    })
    return { client, [Symbol.asyncDispose]: () => client.end({ timeout: 1 }) }
  },
}

export const libraries: readonly ClientLibrary[] = [withPg, withPostgresJs]
