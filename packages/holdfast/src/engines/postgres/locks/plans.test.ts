/**
 * Plans are cached by each connection, and made by what the tables hold at that time (T83, plans for small tables). Whatever they held: a call
 * reads what belongs to its own names, and nothing else.
 */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { acquiring, applySql, rowsOf } from '../../../../test/postgres/requests.ts'
import { openSession, Stage } from '../../../../test/postgres/stage.ts'
import type { Request } from './batches.ts'

const ITEMS = 32
const OTHERS = 11_000

/** One connection, and the functions as a backend calls them. */
class Caller {
  readonly #client: pg.Client
  readonly #session: number
  /** Of the last grant of each name. */
  readonly #tokens = new Map<string, string>()

  constructor(client: pg.Client, session: number) {
    this.#client = client
    this.#session = session
  }

  /** The entries of indexes and the rows that are read meanwhile, as PostgreSQL counts them. */
  async reads(work: () => Promise<unknown>): Promise<number> {
    await this.#client.query('BEGIN')
    const before = await this.#entries()
    await work()
    const after = await this.#entries()
    await this.#client.query('COMMIT')
    return after - before
  }

  async #entries(): Promise<number> {
    const { rows } = await this.#client.query(`
      SELECT sum(pg_stat_get_xact_tuples_returned(oid))::int AS entries FROM pg_class
      WHERE relnamespace = 'plans'::regnamespace AND relkind IN ('r', 'i')`)
    return rows[0].entries
  }

  async apply(op: Request['op'], names: readonly string[], rest: Partial<Request> = {}): Promise<string[]> {
    const { attempt = 'first', ...fields } = rest
    const session = this.#session
    const requests = names.map((name) => ({
      ...acquiring(name, `${attempt}/${name}`, {
        session,
        owner: 'an owner',
        max_waiters: OTHERS,
        ...fields,
      }),
      op,
      ...(this.#tokens.has(name) && { token: String(this.#tokens.get(name)) }),
    }))
    const { rows } = await this.#client.query(applySql('plans', requests))
    const answers = rowsOf(rows[0].answer)
    for (const [index, name] of names.entries()) {
      const [, , kind, token] = answers.find(([, of]) => of === requests[index]?.attempt) ?? []
      if (kind === 'granted' && token != null) this.#tokens.set(name, token)
    }
    return [...new Set(answers.map(([op, , kind]) => kind ?? op))].sort()
  }

  async look(names: readonly string[], attempt: string): Promise<string[]> {
    const attempts = names.map((name) => `${attempt}/${name}`)
    const { rows } = await this.#client.query('SELECT plans.look($1, $2, $3, $4, $5, $6) AS answer', [
      ...['default', 'nobody', names, names.map(() => this.#session), names, attempts],
    ])
    return [...new Set(rowsOf(rows[0].answer).map(([kind]) => kind))]
  }

  /** The life of another session, which has one claim. */
  async live(name: string): Promise<string[]> {
    const ask = async (sql: string, ...rest: unknown[]) =>
      (await this.#client.query(sql, ['default', ...rest])).rows
    const [{ no }] = await ask('SELECT no FROM plans.open_session($1, $2, $3, 600000)', name, 'another')
    const other = new Caller(this.#client, no)
    await other.apply('g', [name])
    const kept = await ask("SELECT kind FROM plans.keep_alive($1, $2, '{}', '{}', '{}', '{}')", no)
    await ask("SELECT plans.end_session($1, 'nobody', $2)", no)
    return kept.map(({ kind }) => kind)
  }

  /** How many holders and waiters each of the names has. */
  async show(names: readonly string[]): Promise<[number, number][]> {
    const { rows } = await this.#client.query('SELECT plans.states($1, $2, true) AS state', [
      'default',
      names,
    ])
    const counts = rows.map(({ state }) => `${state.holders.length} ${state.waiters.length}`)
    return [...new Set(counts)].map((count) => count.split(' ').map(Number) as [number, number])
  }

  /** A page of which the tables have much more. */
  async page(after: string): Promise<string | undefined> {
    const { rows } = await this.#client.query('SELECT plans.list_states($1, $2, $3, $4) AS state', [
      ...['default', '', after, ITEMS - 1],
    ])
    return rows.find(({ state }) => typeof state === 'string')?.state
  }

  /** In it are so many events that a watcher has seen. */
  async openLog(events: number): Promise<void> {
    await this.#client.query("SELECT plans.open_log('default', 'nobody')")
    await this.#client.query(
      `INSERT INTO plans.events (namespace, xid, log, kind, name, id, holder)
      SELECT namespace, '3', id, 'data', 'x', 'x', 'x' FROM plans.logs, generate_series(1, ${events}) AS i`,
    )
  }

  async closeLog(): Promise<void> {
    await this.#client.query('DELETE FROM plans.logs')
  }

  async watch(names: readonly string[]): Promise<string[]> {
    const { rows: seen } = await this.#client.query(
      'SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next',
    )
    await this.apply('g', names)
    await this.apply('r', names)
    const { rows } = await this.#client.query(
      "SELECT kind FROM plans.read_events('default', (SELECT id FROM plans.logs), ARRAY[$1::text, '1', '2']::xid8[], NULL, '0', 0, 1000)",
      [seen[0].next],
    )
    return [...new Set(rows.map(({ kind }) => kind as string))]
  }

  async analyze(): Promise<void> {
    await this.#client.query(
      `VACUUM ANALYZE plans.holders, plans.waiters, plans.names, plans.marks, plans.sessions, plans.logs, plans.watchers,
        plans.events`,
    )
  }

  /** Rows of other names: as many holders, waiters, marks and names with data. */
  async fill(): Promise<void> {
    await this.#client.query(
      `
      INSERT INTO plans.holders SELECT 'default', 'other/' || i, 'other/' || i, $1, i, 'exclusive', 1, 1, 0, now()
      FROM generate_series(1, ${OTHERS}) AS i`,
      [this.#session],
    )
    await this.#client.query(
      `
      INSERT INTO plans.waiters SELECT 'default', 'other/' || i, i, 'waiter/' || i, $1, 'exclusive', 1, 1, 0, now()
      FROM generate_series(1, ${OTHERS}) AS i`,
      [this.#session],
    )
    await this.#client.query(
      `INSERT INTO plans.marks SELECT $1, 'marked/' || i, 'abandoned' FROM generate_series(1, ${OTHERS}) AS i`,
      [this.#session],
    )
    await this.#client.query(
      `INSERT INTO plans.names SELECT 'default', 'other/' || i, 1, 'data' FROM generate_series(1, ${OTHERS}) AS i`,
    )
  }
}

describe.runIf(wanted('postgres'))('plans on postgres', () => {
  let server: Server
  beforeAll(async () => {
    // Nothing but the test makes statistics.
    server = await startPostgres({ settings: { autovacuum: 'off' } })
  })
  afterAll(() => server?.stop())

  // The last is what an automatic ANALYZE of a new table leaves.
  for (const [start, prepare] of [
    ['were new', async () => {}],
    ['were known to be empty', (caller: Caller) => caller.analyze()],
    [
      'were known to be small',
      async (caller: Caller) => {
        await caller.apply('g', ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'])
        await caller.analyze()
      },
    ],
  ] as const) {
    test(`T83 with plans made while the tables ${start}, calls read as little with 11,000 others held`, async () => {
      await using stage = new Stage(server.url)
      const operator = await stage.operator()
      await operator.query('DROP SCHEMA IF EXISTS plans CASCADE')
      const backend = await stage.backend({ schema: 'plans' })
      await openSession(backend, 600_000)
      const { rows } = await operator.query('SELECT no::int FROM plans.sessions')
      const caller = new Caller(operator, rows[0].no)
      await prepare(caller)
      // PostgreSQL makes a plan for every call at first, and one for all calls later.
      for (let made = 0; made < 8; made++) await costs(caller, `first ${made}`)
      const before = await costs(caller, 'before')
      await caller.fill()
      const after = await costs(caller, 'after')
      const more = Object.entries(after).map(
        ([what, entries]) => [what, entries - (before[what] ?? 0)] as const,
      )
      expect(more.filter(([, entries]) => entries > 4 * ITEMS)).toEqual([])
    })
  }
})

test.runIf(wanted('postgres'))('T81 joining a queue reads as little when thousands wait', async () => {
  await using server = await startPostgres({ settings: { autovacuum: 'off' } })
  await using stage = new Stage(server.url)
  await openSession(await stage.backend({ schema: 'plans' }), 600_000)
  const operator = await stage.operator()
  const { rows } = await operator.query('SELECT no::int FROM plans.sessions')
  const caller = new Caller(operator, rows[0].no)
  await caller.apply('g', ['hot'])
  const wait = (attempt: string) =>
    caller.apply('g', ['hot'], { attempt, waits: true, max_waiters: undefined })
  const join = (attempt: string) => caller.reads(() => wait(attempt))
  for (let index = 0; index < 100; index++) await join(`early ${index}`)
  const before = await join('before')
  for (let index = 0; index < 2_000; index++) await wait(`waiter ${index}`)
  expect((await join('after')) - before).toBeLessThan(20)
})

async function costs(caller: Caller, label: string): Promise<Record<string, number>> {
  const names = Array.from({ length: ITEMS }, (_, index) => `${label}/${index}`)
  const costs: Record<string, number> = {}
  const step = async (what: string, work: () => Promise<unknown>, answer: unknown) => {
    costs[what] = await caller.reads(async () => expect(await work(), what).toEqual(answer))
  }
  const second = { attempt: 'second' }
  const waiting = { ...second, waits: true }
  await step('acquire', () => caller.apply('g', names), ['granted'])
  await step('acquire again', () => caller.apply('g', names), ['granted'])
  await step('acquire what is held', () => caller.apply('g', names, second), ['busy'])
  await step('enqueue', () => caller.apply('g', names, waiting), ['queued'])
  await step('inspect', () => caller.show(names), [[1, 1]])
  await step('list', () => caller.page(`${label}/`), `${label}/8`)
  await step('look', () => caller.look(names, 'second'), ['due'])
  await step('abandon', () => caller.apply('a', names, second), ['abandoned'])
  await step('set data', () => caller.apply('d', names), ['stored'])
  await step('release', () => caller.apply('r', names), ['released'])
  await step('release again', () => caller.apply('r', names), ['not-held'])
  await step('acquire one', () => caller.apply('g', [label]), ['granted'])
  await step('acquire one that is held', () => caller.apply('g', [label], second), ['busy'])
  await step('enqueue one', () => caller.apply('g', [label], waiting), ['queued'])
  await step('release one to the next', () => caller.apply('r', [label]), ['handed', 'released'])
  await step('acquire alone', () => caller.apply('g', [`${label}/alone`]), ['granted'])
  await step('release alone', () => caller.apply('r', [`${label}/alone`]), ['released'])
  await step('release alone again', () => caller.apply('r', [`${label}/alone`]), ['not-held'])
  await step('a session', () => caller.live(`${label}/another`), ['alive', 'unlisted'])
  await caller.openLog(label === 'after' ? OTHERS : 0)
  await step('what is watched', () => caller.watch(names), ['now', 'acquired', 'released'])
  await caller.closeLog()
  return costs
}
