import { psql, startPooledPostgres, startPostgres, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { libraries } from '../../../../test/postgres/clients.ts'
import { call, exclusive, openSession, Stage, take, until } from '../../../../test/postgres/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import type { PostgresBackend } from './backend.ts'

describe.runIf(wanted('postgres'))('the diagnosis of a PostgreSQL server', () => {
  test('a server that is set up well has no findings', async () => {
    await using server = await startPostgres({ fsync: true, settings: { full_page_writes: 'on' } })
    await using stage = new Stage(server.url)
    for (const library of libraries) expect(await codesOf(await stage.backend({ library }))).toEqual([])
  })

  test('settings that endanger locks are found, each with a reason and a remedy', async () => {
    await using server = await startPostgres({
      settings: { fsync: 'off', full_page_writes: 'off', autovacuum: 'off' },
    })
    await using stage = new Stage(server.url)
    const since = Object.entries({ 14: 'idle_session_timeout', 17: 'transaction_timeout' })
    const version = Number.parseInt(await psql(server, 'SHOW server_version'), 10)
    const timeouts = since.filter(([first]) => Number(first) <= version).map(([, name]) => name)
    const backend = await stage.backend({
      clients: {
        settings: {
          statement_timeout: '900',
          ...Object.fromEntries(timeouts.map((name) => [name, '5000'])),
        },
      },
    })
    expect(await codesOf(backend)).toEqual([
      'HOLDFAST_POSTGRES_FSYNC',
      'HOLDFAST_POSTGRES_FULL_PAGE_WRITES',
      'HOLDFAST_POSTGRES_AUTOVACUUM',
      'HOLDFAST_POSTGRES_STATEMENT_TIMEOUT',
      ...timeouts.map(() => 'HOLDFAST_POSTGRES_SESSION_TIMEOUT'),
    ])
    for (const { what, why, fix } of await backend.diagnose(call()))
      for (const text of [what, why, fix]) expect(text).toMatch(/^\S.*\.$/)
  })

  test('connections that run short are found', async () => {
    await using server = await startPostgres({
      fsync: true,
      settings: { full_page_writes: 'on', max_connections: '8', max_wal_senders: '0' },
    })
    await using stage = new Stage(server.url)
    const [finding] = await (await stage.backend()).diagnose(call())
    expect(finding?.code).toBe('HOLDFAST_POSTGRES_CONNECTIONS_LEFT')
    expect(finding?.what).toMatch(/^[0-4] of 5 connections are left\.$/)
  })

  test.runIf(wanted('pgbouncer'))('waiters that poll are found, once something has waited', async () => {
    await using pooled = await startPooledPostgres()
    await using stage = new Stage(pooled.url)
    const backend = await stage.backend()
    const session = await openSession(backend)
    expect(await codesOf(backend)).not.toContain('HOLDFAST_POSTGRES_POLLING')
    await take(session, exclusive('x'))
    const controller = new AbortController()
    const waiting = enqueued(session, exclusive('x'), callWith(controller.signal)).catch(() => {})
    await until('it polls', async () => (await codesOf(backend)).includes('HOLDFAST_POSTGRES_POLLING'))
    controller.abort()
    await waiting
  })
})

async function codesOf(backend: PostgresBackend): Promise<string[]> {
  return (await backend.diagnose(call())).map(({ code }) => code)
}
