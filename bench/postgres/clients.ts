/** The client libraries, as everybody here uses them. */
import pg from 'pg'
import postgres from 'postgres'

/** As many connections as either library opens by default. */
const connections = 10

export interface Opened<Client> {
  readonly client: Client
  close(): Promise<void>
}

export function openPg(url: string, max = connections): Opened<pg.Pool> {
  const client = new pg.Pool({ connectionString: url, max })
  return { client, close: () => client.end() }
}

export function openPostgresJs(url: string, max = connections): Opened<postgres.Sql> {
  const client = postgres(url, { max, onnotice: () => {} })
  return { client, close: () => client.end({ timeout: 1 }) }
}
