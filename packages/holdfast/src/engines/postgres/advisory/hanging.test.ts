/** Calls and ends while the server, or one of its tables, does not answer. */
import { startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { callWith } from '../../../base/aborting.ts'
import { createLocker } from '../../../locker/locker.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { openPostgresAdvisory } from './assemble.ts'
import { statementsFor } from './statements.ts'

function poolOf(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 3 })
  pool.on('error', () => {})
  return pool
}

const session = () => ({ id: newSessionId(), ttlMs: 30_000, holder: 'test' })

describe.runIf(wanted('postgres'))('postgres-advisory without answers', () => {
  test('T16 a locker closes while the server is frozen', async () => {
    await using server = await startPostgres()
    const pool = poolOf(server.url)
    const locker = createLocker(await openPostgresAdvisory({ client: pool }))
    await server.pause()
    await expect(locker.acquire('x', { waitMs: 500 })).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    await locker.close()
    await server.resume()
    await pool.end()
  })

  test('T16 opening a session settles when it is cancelled, although a table is locked, and the backend closes', async () => {
    await using server = await startPostgres()
    const pool = poolOf(server.url)
    const backend = await openPostgresAdvisory({ client: pool })
    const operator = new pg.Client(server.url)
    await operator.connect()
    await operator.query('BEGIN; LOCK TABLE holdfast.advisory_connections IN ACCESS EXCLUSIVE MODE')
    const opening = backend.openSession(session(), callWith(AbortSignal.timeout(300)))
    await expect(opening).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    await backend[Symbol.asyncDispose]()
    await operator.end()
    await pool.end()
  })

  test('T78 the last step of a force release that lands late ends no lock that was not named', async () => {
    await using server = await startPostgres()
    const pool = poolOf(server.url)
    const backend = await openPostgresAdvisory({ client: pool })
    const holder = await backend.openSession(session(), call())
    const named = await holder.tryAcquire(request('a'), call())
    const other = await holder.tryAcquire(request('b'), call())
    if (named.kind !== 'granted' || other.kind !== 'granted') throw new Error('busy')
    const { rows } = await pool.query(
      "SELECT conn::text FROM holdfast.advisory_holders WHERE key IS NOT NULL AND name = 'a'",
    )
    await holder.release(named.grant, { keepForMs: 0 }, call())
    const values = [`{${rows[0].conn}}`, '5000', `{${named.grant.token}}`]
    await pool.query({ text: statementsFor('holdfast').end.text, values })
    expect(await holder.keepAlive({ held: [other.grant], waiting: [] }, call())).toMatchObject({
      kind: 'alive',
      lost: [],
    })
    await backend[Symbol.asyncDispose]()
    await pool.end()
  })
})
