/** Layout 1 is brought up to date in place. A client of layout 1 is what it sends: here, by hand. */
import { readFileSync } from 'node:fs'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Rig } from '../../../test/postgres-advisory/rig.ts'
import { call, request } from '../../testing/conformance/requests.ts'
import { newSessionId } from '../../testing/conformance/stage.ts'
import { defaultKey } from './keys.ts'

const fixture = new URL('../../../test/postgres/fixtures/advisory-1.sql', import.meta.url)
const layout1 = (schema: string) => readFileSync(fixture, 'utf8').replaceAll('"holdfast"', `"${schema}"`)

describe.runIf(wanted('postgres'))('upgrading postgres-advisory', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  }, 60_000)
  afterAll(() => server?.stop())

  test('a client of layout 1 that runs and the new ones exclude each other, and tokens go on', async () => {
    await using rig = new Rig(server)
    const old = await rig.byHand()
    await old.query(layout1('upgraded'))
    const conn = '4711'
    await old.query('SELECT upgraded.advisory_open_session($1, 60000, $2, $3)', [conn, 'old', 'nobody'])
    const first = await oldTry(old, conn, 'x')
    expect(first).toMatch(/^granted/)

    const options = { schema: 'upgraded' }
    await expect(rig.backend({ ...options, createSchema: false })).rejects.toThrow(/older release/)
    const [backend] = await Promise.all([rig.backend(options), rig.backend(options), rig.backend(options)])
    const opened = await backend.openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'new' }, call())
    expect((await opened.tryAcquire(request('x'), call())).kind).toBe('busy')
    const granted = await opened.tryAcquire(request('y'), call())
    if (granted.kind !== 'granted') throw new Error(`it was ${granted.kind}`)
    expect(granted.grant.token).toBeGreaterThan(BigInt(first.split(' ')[1] ?? 0))
    expect(await oldTry(old, conn, 'y')).toBe('busy')
    expect(await oldTry(old, conn, 'z')).toMatch(/^granted/)
  })

  test('an upgrade and a running call do not wait for each other', async () => {
    await using rig = new Rig(server)
    const running = await rig.byHand()
    await running.query(layout1('busy'))
    await running.query('BEGIN')
    await running.query('SELECT count(*) FROM busy.advisory_sessions, busy.advisory_locks')
    await rig.backend({ schema: 'busy' })
    await running.query('SELECT count(*) FROM busy.advisory_claims, busy.advisory_forced')
    await running.query('DELETE FROM busy.advisory_sessions')
    await running.query('COMMIT')
  })
})

async function oldTry(client: pg.Client, conn: string, name: string): Promise<string> {
  const { rows } = await client.query(
    "SELECT upgraded.advisory_try($1, 1, 'x', $2, 'default', $3, $4, NULL, 0) AS answer",
    [conn, String(defaultKey('default', name)), name, `id/${name}`],
  )
  return rows[0].answer
}
