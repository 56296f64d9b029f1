/** Callers whose waits are short: what they cost the server, and each other. */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { acquiring, applySql } from '../../../../test/postgres/requests.ts'
import {
  call,
  exclusive,
  openSession,
  Stage,
  take as takeNow,
  until,
} from '../../../../test/postgres/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { systemClock } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createLocker } from '../../../locker/locker.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { openPostgres } from './assemble.ts'

const CONTENDERS = 10
const TRIES = 40

describe.runIf(wanted('postgres'))('short waits on postgres', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  test('G8 contenders that wait for 20 ms keep their connections, and some of them are granted', async () => {
    const pool = new pg.Pool({ connectionString: server.url, max: 4 })
    let connections = 0
    pool.on('connect', () => connections++)
    const locker = createLocker(await openPostgres({ client: pool }))
    const counts = { granted: 0, timedOut: 0, unknown: 0 }
    const contend = async () => {
      for (let tried = 0; tried < TRIES; tried++) {
        try {
          await locker.withLease(
            'hot',
            { waitMs: 20 },
            () => new Promise((done) => systemClock.setTimer(2, () => done(null))),
          )
          counts.granted++
        } catch (error) {
          if (isHoldfastError(error, 'ACQUIRE_TIMEOUT')) counts.timedOut++
          else if (isHoldfastError(error, 'BACKEND_UNAVAILABLE')) counts.unknown++
          else throw error
        }
      }
    }
    await Promise.all(Array.from({ length: CONTENDERS }, contend))
    await locker.close()
    await pool.end()
    expect(counts.granted + counts.timedOut + counts.unknown).toBe(CONTENDERS * TRIES)
    expect(counts.granted).toBeGreaterThan(0)
    expect(connections).toBeLessThanOrEqual(4)
  })

  test('G8 a waiter whose time is over is passed over, and learns that its position is gone', async () => {
    await using stage = new Stage(server.url)
    const session = await openSession(await stage.backend({ schema: 'over' }))
    const operator = await stage.operator()
    const [held, short, long] = [
      exclusive('x'),
      exclusive('x', { waitMs: 200 }),
      exclusive('x', { waitMs: 600_000 }),
    ]
    await takeNow(session, held)
    // It is told of nothing: the caller's own time ends the wait.
    enqueued(session, short, call()).catch(() => {})
    const granted = enqueued(session, long, call())
    await until('the long wait is in the queue, and the time of the short one is over', async () => {
      const { rows } = await operator.query(
        'SELECT attempt FROM over.waiters WHERE until > clock_timestamp()',
      )
      return rows.length === 1 && rows[0].attempt === long.attempt
    })
    await session.release(held, { keepForMs: 0 }, call())
    expect(await granted).toMatchObject({ kind: 'granted' })
    const kept = await session.keepAlive({ held: [], waiting: [short] }, call())
    expect(kept).toMatchObject({ kind: 'alive', lost: [{ attempt: short.attempt }] })
  })

  test('G8 a request that is judged after its time is not granted, and does not queue', async () => {
    await using stage = new Stage(server.url)
    const session = await openSession(await stage.backend({ schema: 'late' }))
    const operator = await stage.operator()
    await takeNow(session, exclusive('other'))
    await operator.query('BEGIN')
    await operator.query("SELECT late.lock_names('default', '{x}')")
    const controller = new AbortController()
    const answered = Promise.withResolvers<void>()
    const late = enqueued(
      session,
      exclusive('x', { waitMs: 1 }),
      callWith(controller.signal, { queued: () => answered.resolve() }),
    )
    late.catch(() => {})
    const observer = await stage.operator()
    await until('it waits for the lock of the name, and its time is over', async () => {
      const { rows } = await observer.query(
        "SELECT FROM pg_stat_activity WHERE wait_event = 'advisory' AND clock_timestamp() > query_start + interval '2 ms'",
      )
      return rows.length === 1
    })
    await operator.query('COMMIT')
    await answered.promise
    controller.abort()
    await expect(late).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    const { rows } = await operator.query(
      'SELECT name FROM late.holders UNION ALL SELECT name FROM late.waiters',
    )
    expect(rows).toEqual([{ name: 'other' }])
  })

  test('T68 calls that grant, close or store something wait for the disk, and no others', async () => {
    await using stage = new Stage(server.url)
    await openSession(await stage.backend({ schema: 'disk' }), 600_000)
    const operator = await stage.operator()
    const take = (attempt: string, waits: boolean) => applySql('disk', [acquiring('x', attempt, { waits })])
    const apply = (op: 'r' | 'a' | 'd', attempt: string, token?: number, ms = 0) =>
      applySql('disk', [
        { op, name: 'x', attempt, session: 1, ms, ...(token && { token: `${token}`, text: 'text' }) },
      ])
    const calls: [what: string, sql: string, lasts: boolean][] = [
      ['a grant', take('a', true), true],
      ['a try that is busy', take('b', false), false],
      ['a position in the queue', take('b', true), false],
      ['another', take('c', true), false],
      ['an abandoned position', apply('a', 'c'), false],
      ['data', apply('d', 'a', 1), true],
      ['a release to the next', apply('r', 'a', 1), true],
      ['a release of what is not held', apply('r', 'a', 1), false],
      ['a release that keeps the name closed', apply('r', 'b', 2, 60_000), true],
    ]
    for (const [what, sql, lasts] of calls) {
      await operator.query('BEGIN')
      await operator.query(sql)
      const { rows } = await operator.query('SHOW synchronous_commit')
      await operator.query('COMMIT')
      expect([what, rows[0].synchronous_commit]).toEqual([what, lasts ? 'on' : 'off'])
    }
  })
})
