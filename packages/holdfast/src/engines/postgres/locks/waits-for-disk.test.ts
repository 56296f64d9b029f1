/** Which calls wait for the disk: all that grant or close a name, also when they find a holder expired on the way. */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { acquiring, applySql } from '../../../../test/postgres/requests.ts'
import { openSession, Stage } from '../../../../test/postgres/stage.ts'
import type { Request } from './batches.ts'

describe.runIf(wanted('postgres'))('postgres: what waits for the disk', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  test('G2 grants, hand-overs and lock-delays wait for the disk, also after an expiry', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'disk' })
    for (let count = 0; count < 4; count++) await openSession(backend, 600_000)
    const operator = await stage.operator()
    const take = (name: string, attempt: string, session: number, rest: Partial<Request> = {}) =>
      applySql('disk', [acquiring(name, attempt, { session, ...rest })])
    const permit = { mode: 'permits', weight: 1, capacity: 5 }
    const expire = (no: number) =>
      `UPDATE disk.sessions SET expires_at = clock_timestamp() - interval '1 second' WHERE no = ${no}`
    const calls: [what: string, sql: string, lasts: boolean | null][] = [
      ['one of several', take('s', 's1', 1, permit), true],
      ['a second of several', take('s', 's2', 1, permit), true],
      ['a holder', take('y', 'y1', 2), true],
      ['', expire(2), null],
      ['a grant after an expired holder', take('y', 'y2', 1), true],
      ['a holder with a lock-delay', take('z', 'z1', 3, { ms: 60_000 }), true],
      ['', expire(3), null],
      ['a try that finds the holder expired and closes the name', take('z', 'z2', 1), true],
      ['a waiter', take('y', 'y3', 4, { waits: true }), false],
      ['', expire(1), null],
      ['a try that hands the name of an expired holder to the waiter', take('y', 'y4', 4), true],
    ]
    for (const [what, sql, lasts] of calls) {
      await operator.query('BEGIN')
      await operator.query(sql)
      const { rows } = await operator.query('SHOW synchronous_commit')
      await operator.query('COMMIT')
      if (lasts !== null)
        expect.soft([what, rows[0].synchronous_commit]).toEqual([what, lasts ? 'on' : 'off'])
    }
  })
})
