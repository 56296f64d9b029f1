/** The watchers of one process on a real server. The test decides when time passes, and when a statement is sent. */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { Stage, until } from '../../../../test/postgres/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { limits } from '../../../base/defaults.ts'
import { systemRandom } from '../../../base/ids.ts'
import { WATCHED_FOR_MS } from '../../../kit/follow-log.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import type { Row } from '../client/index.ts'
import { statementsFor } from './statements.ts'
import { cursorOf, type Position, positionAt, Watchers, type WatchersOptions } from './watch.ts'

type LogStatement = Parameters<WatchersOptions['query']>[0]

const SCHEMA = 'watched'

class Rig {
  readonly clock = createFakeClock()
  readonly sent: LogStatement[] = []
  readonly watchers: Watchers
  readonly operator: pg.Client
  /** Statements of this kind wait here until the promise resolves. */
  readonly held = new Map<LogStatement, Promise<unknown>>()
  #inFlight = 0

  constructor(client: pg.Pool, operator: pg.Client) {
    this.operator = operator
    const sql = statementsFor(SCHEMA)
    this.watchers = new Watchers({
      clock: this.clock,
      random: systemRandom,
      namespace: 'default',
      channel: 'listening',
      pollMs: 200,
      query: async (statement, parameters) => {
        this.#inFlight++
        try {
          await this.held.get(statement)
          this.sent.push(statement)
          const { rows } = await client.query({
            text: sql[statement],
            values: [...parameters],
            rowMode: 'array',
          })
          return rows as Row[]
        } finally {
          this.#inFlight--
        }
      },
      sweep: async () => {},
      expectNews: () => {},
      isTold: () => true,
    })
  }

  count(statement: LogStatement): number {
    return this.sent.filter((each) => each === statement).length
  }

  async answered(): Promise<void> {
    await until('everything is answered', () => this.#inFlight === 0)
    await this.clock.settle()
  }

  async pass(ms: number, steps: number): Promise<void> {
    for (let step = 0; step < steps; step++) {
      await this.clock.advance(ms / steps)
      await this.answered()
    }
  }

  /** Events of one transaction, as if they had happened. */
  async pretend(count: number): Promise<void> {
    await this.operator.query(
      `SELECT ${SCHEMA}.log_event('default', 'data', 'x', 'id', NULL, NULL, NULL) FROM generate_series(1, $1)`,
      [count],
    )
  }

  async registrations(): Promise<number> {
    const { rows } = await this.operator.query(`SELECT count(*)::int AS n FROM ${SCHEMA}.watchers`)
    return rows[0].n
  }
}

describe.runIf(wanted('postgres'))('the watchers of a process on postgres', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  async function setUp(stage: Stage): Promise<Rig> {
    const operator = await stage.operator()
    await operator.query(`DROP SCHEMA IF EXISTS ${SCHEMA} CASCADE`)
    await stage.backend({ schema: SCHEMA })
    const pool = new pg.Pool({ connectionString: server.url, max: 5 })
    onTestFinished(() => pool.end())
    return new Rig(pool, operator)
  }

  /** A transaction that may have looked for the log already. */
  async function beginWriting(operator: pg.Client): Promise<void> {
    await operator.query('BEGIN')
    await operator.query(`DELETE FROM ${SCHEMA}.holders WHERE false`)
  }

  test('the wait for writers pauses longer and longer, and ends when its watcher leaves', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    await beginWriting(rig.operator)
    const controller = new AbortController()
    const leave = rig.watchers.join()
    const head = rig.watchers.head(callWith(controller.signal)).then(String, String)
    await rig.answered()
    await rig.pass(5_000, 100)
    const asked = rig.count('openLog')
    expect(asked).toBeGreaterThan(10)
    expect(asked).toBeLessThan(40)
    controller.abort()
    leave()
    await rig.pass(5_000, 20)
    expect(rig.count('openLog')).toBe(asked)
    expect(rig.clock.pendingTimers).toBe(0)
    await head
    await rig.operator.query('COMMIT')
    // The next watcher does not wait.
    rig.watchers.join()
    expect(await rig.watchers.head(callWith())).toMatchObject({ log: expect.any(String) })
    expect(rig.count('openLog')).toBe(asked + 1)
  })

  test('a writer that comes while a watcher waits for others is not waited for', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    const [early, late] = [await stage.operator(), await stage.operator()]
    await beginWriting(early)
    rig.watchers.join()
    const head = rig.watchers.head(callWith())
    await rig.answered()
    await rig.pass(1_000, 10)
    await beginWriting(late)
    await early.query('COMMIT')
    await rig.pass(1_000, 10)
    expect(await head).toMatchObject({ log: expect.any(String) })
    await late.query('COMMIT')
  })

  test('a registration that arrives after the last watcher has left is taken back', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    const { promise, resolve } = Promise.withResolvers<void>()
    rig.held.set('openLog', promise)
    const leave = rig.watchers.join()
    const opened = rig.watchers.register()
    leave()
    await until('it has left', () => rig.count('leaveLog') === 1)
    resolve()
    await opened
    await rig.answered()
    expect(await rig.registrations()).toBe(0)
  })

  test('a watcher that comes back registers after its `leaveLog` has been answered', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    const { promise, resolve } = Promise.withResolvers<void>()
    rig.held.set('leaveLog', promise)
    rig.watchers.join()()
    rig.watchers.join()
    const opened = rig.watchers.register()
    await rig.clock.settle()
    resolve()
    await opened
    await rig.answered()
    expect(rig.sent).toEqual(['leaveLog', 'openLog'])
    expect(await rig.registrations()).toBe(1)
  })

  async function headOf(rig: Rig): Promise<Position> {
    rig.watchers.join()
    const head = rig.watchers.head(callWith())
    await rig.answered()
    await rig.pass(1_000, 10)
    return head
  }

  test('watchers at the same position share a read', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    const at = await headOf(rig)
    await rig.pretend(3)
    const pages = await Promise.all([rig.watchers.read(at), rig.watchers.read(at), rig.watchers.read(at)])
    expect(pages.map((page) => page?.events.length)).toEqual([3, 3, 3])
    expect(rig.count('readEvents')).toBe(1)
    expect((await rig.watchers.read(at))?.events).toHaveLength(3)
    expect(rig.count('readEvents')).toBe(2)
  })

  test('what is logged between two pages is read after them', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    let at = await headOf(rig)
    await rig.pretend(2_500)
    const read: number[] = []
    for (let isLast = false; !isLast; ) {
      const page = await rig.watchers.read(at)
      if (page === null) throw new Error('there is a gap')
      read.push(page.events.length)
      if (read.length === 1) await rig.pretend(1)
      ;({ next: at, isLast } = page)
    }
    expect(read).toEqual([1_000, 1_000, 500])
    expect((await rig.watchers.read(at))?.events).toHaveLength(1)
  })

  test('a watch of a namespace without sessions sends nothing but its prolongation', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    rig.watchers.join()
    await rig.watchers.register()
    await rig.pass(WATCHED_FOR_MS, 60)
    expect(rig.sent).toEqual(Array.from({ length: 4 }, () => 'openLog'))
  })
})

describe('a cursor', () => {
  const log = '0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b'
  const beside = (count: number) => Array.from({ length: count + 1 }, (_, i) => 10 ** 9 + i).join('.')

  test('in the middle of a page, beside 900 open transactions, is one that watch takes', () => {
    const position = { log, seen: beside(900), page: { until: beside(900), xid: '1000000000', no: '12' } }
    const cursor = cursorOf(position)
    expect(cursor.length).toBeGreaterThan(10_000)
    expect(cursor.length).toBeLessThanOrEqual(limits.cursorBytes)
    expect(positionAt(cursor)).toEqual(position)
  })

  test('leads to a gap with more open transactions than it can name', () => {
    const cursor = cursorOf({ log, seen: beside(2_000) })
    expect(cursor.length).toBeLessThanOrEqual(limits.cursorBytes)
    expect(positionAt(cursor)).toBeNull()
  })
})
