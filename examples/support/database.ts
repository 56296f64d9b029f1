/** A PostgreSQL database for one run of one example, which is gone when the example ends. */
import { randomBytes } from 'node:crypto'
import { reach } from 'holdfast-lab/servers'
import pg from 'pg'

export interface Database extends AsyncDisposable {
  readonly url: string
  readonly pool: pg.Pool
}

/** On the server at this address, or at the one in the environment, or on one that is started for it. */
export async function openDatabase(address?: string): Promise<Database> {
  const server = address === undefined ? await reach('postgres') : null
  const home = address ?? server?.url ?? ''
  const name = `holdfast_example_${randomBytes(6).toString('hex')}`
  await administer(home, `CREATE DATABASE ${name}`)
  const url = Object.assign(new URL(home), { pathname: `/${name}` }).href
  const pool = new pg.Pool({ connectionString: url, max: 20 })
  return {
    url,
    pool,
    async [Symbol.asyncDispose]() {
      await pool.end()
      // By force: a process that the example has killed may not have been missed by the server yet.
      await administer(home, `DROP DATABASE ${name} WITH (FORCE)`)
      await server?.stop()
    },
  }
}

export async function inTransaction<T>(pool: pg.Pool, work: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  try {
    await client.query('BEGIN')
    const result = await work(client)
    await client.query('COMMIT')
    return result
  } catch (error) {
    await client.query('ROLLBACK')
    throw error
  } finally {
    client.release()
  }
}

async function administer(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}
