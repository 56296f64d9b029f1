/** The watchers of one process on a real server. The test decides when time passes, and when a statement is sent. */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { Stage, until } from '../../../test/postgres/stage.ts'
import { systemRandom } from '../../base/ids.ts'
import type { Row } from '../../clients/postgres/index.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { WATCHED_FOR_MS } from './sql/events.ts'
import { statementsFor } from './statements.ts'
import { Watchers, type WatchersOptions } from './watchers.ts'

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
  }, 60_000)
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

  test('the wait for writers is shared, pauses longer and longer, and ends when no watcher is left', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    await beginWriting(rig.operator)
    const feeds = Array.from({ length: 5 }, () => rig.watchers.join())
    const heads = feeds.map(() => rig.watchers.head().then(String, String))
    await rig.answered()
    await rig.pass(5_000, 100)
    const asked = rig.count('writers')
    expect(asked).toBeGreaterThan(10)
    expect(asked).toBeLessThan(40)
    for (const feed of feeds) rig.watchers.leave(feed)
    await rig.pass(5_000, 20)
    expect(rig.count('writers')).toBe(asked)
    expect(rig.clock.pendingTimers).toBe(0)
    await Promise.all(heads)
    await rig.operator.query('COMMIT')
    // The next watcher begins a wait of its own.
    rig.watchers.join()
    expect(await rig.watchers.head()).toMatchObject({ log: expect.any(String) })
  })

  test('a watcher that comes while the others leave goes on with their wait for writers, and is registered', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    const writer = await stage.operator()
    await beginWriting(writer)
    const first = rig.watchers.join()
    const cancelled = rig.watchers.head().then(String, String)
    await rig.answered()
    rig.watchers.leave(first)
    rig.watchers.join()
    const head = rig.watchers.head()
    await rig.pass(1_000, 10)
    await writer.query('COMMIT')
    await rig.pass(1_000, 10)
    expect(await head).toMatchObject({ log: expect.any(String) })
    expect(await rig.registrations()).toBe(1)
    await cancelled
  })

  test('a registration that arrives after the last watcher has left is taken back', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    const { promise, resolve } = Promise.withResolvers<void>()
    rig.held.set('watchLog', promise)
    const feed = rig.watchers.join()
    const opened = rig.watchers.keepOpen()
    rig.watchers.leave(feed)
    await until('it has left', () => rig.count('unwatchLog') === 1)
    resolve()
    await opened
    await rig.answered()
    expect(await rig.registrations()).toBe(0)
  })

  test('a watcher that comes back registers after its `unwatchLog` has been answered', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    const { promise, resolve } = Promise.withResolvers<void>()
    rig.held.set('unwatchLog', promise)
    rig.watchers.leave(rig.watchers.join())
    rig.watchers.join()
    const opened = rig.watchers.keepOpen()
    await rig.clock.settle()
    resolve()
    await opened
    await rig.answered()
    expect(rig.sent).toEqual(['unwatchLog', 'watchLog'])
    expect(await rig.registrations()).toBe(1)
  })

  /** The reader has read one page of three, and waits for the next one. */
  async function betweenPages(rig: Rig) {
    const feed = rig.watchers.join()
    const at = await rig.watchers.head()
    await rig.pretend(2_500)
    const { promise, resolve } = Promise.withResolvers<void>()
    expect(rig.watchers.follow(feed, at)).toBe(true)
    rig.held.set('readLog', promise)
    await until('the first page is there', () => feed.pages.length === 1)
    return { feed, at, readOn: resolve }
  }

  test('a watcher that joins while the reader is between two pages reads the first one by itself', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    const { at, readOn } = await betweenPages(rig)
    const late = rig.watchers.join()
    expect(rig.watchers.follow(late, at)).toBe(false)
    readOn()
    await rig.answered()
    const page = await rig.watchers.read(at)
    expect(page?.events).toHaveLength(1_000)
  })

  test('what is announced while the reader is between two pages is read after them', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    const { feed, readOn } = await betweenPages(rig)
    await rig.pretend(1)
    rig.watchers.look()
    readOn()
    await rig.answered()
    await rig.pass(1_000, 10)
    expect(feed.take().flatMap(({ events }) => events)).toHaveLength(2_501)
  })

  test('a watch of a namespace without sessions sends nothing but its prolongation', async () => {
    await using stage = new Stage(server.url)
    const rig = await setUp(stage)
    rig.watchers.join()
    await rig.watchers.keepOpen()
    await rig.pass(WATCHED_FOR_MS, 60)
    expect(rig.sent).toEqual(Array.from({ length: 4 }, () => 'watchLog'))
  })
})
