/** The two client libraries, as tests use them. */
import pg from 'pg'
import postgres from 'postgres'
import type { PgPool, PostgresClient } from '../../src/engines/postgres/locks/index.ts'

export interface OpenedClient<C extends PostgresClient = PostgresClient> extends AsyncDisposable {
  readonly client: C
}

export interface ClientOptions {
  readonly max?: number
  /** False: postgres.js asks nothing by itself when it connects: a failure of that could not be caught. */
  readonly fetchTypes?: boolean
  /** False for postgres.js behind a pooler in transaction mode, as its documentation says. */
  readonly prepare?: boolean
  /** Settings of the server's session, as in `-c name=value`; not through a pooler. */
  readonly settings?: Readonly<Record<string, string>>
}

export interface ClientLibrary<C extends PostgresClient = PostgresClient> {
  readonly name: 'pg' | 'postgres.js'
  open(url: string, options?: ClientOptions): OpenedClient<C>
}

export const withPg: ClientLibrary<PgPool> = {
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
  open(url, { max = 10, settings = {}, fetchTypes = true, prepare = true } = {}) {
    const client = postgres(url, {
      fetch_types: fetchTypes,
      prepare,
      max,
      connection: { ...settings },
      onnotice: () => {},
    })
    return { client, [Symbol.asyncDispose]: () => client.end({ timeout: 1 }) }
  },
}

export const libraries: readonly ClientLibrary[] = [withPg, withPostgresJs]

/** For session locks: postgres.js does not tell when a connection ends. */
export const advisoryLibraries: readonly ClientLibrary<PgPool>[] = [withPg]
