/** Cases of `watch` that only this engine can get wrong; the conformance suite has the rest. */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { acquiring, applySql, rowsOf } from '../../../../test/postgres/requests.ts'
import { call, exclusive, openSession, Stage, take, until } from '../../../../test/postgres/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { KEPT_EVENTS } from '../../../kit/follow-log.ts'
import type { WatchEvent } from '../../../spi.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import type { PostgresBackend } from './backend.ts'

const release = { keepForMs: 0 }

/** Reads events in the background, until it is told to stop. */
function watching(backend: PostgresBackend, cursor?: string, prefix = '') {
  const events: WatchEvent[] = []
  const controller = new AbortController()
  onTestFinished(() => controller.abort())
  const options = cursor === undefined ? {} : { cursor }
  let error: unknown
  let last = ''
  const reading = (async () => {
    for await (const event of backend.watch(prefix, options, callWith(controller.signal))) {
      events.push(event)
      last = event.cursor
    }
  })().catch((thrown: unknown) => {
    error = thrown
  })
  const ended = reading.then(() => error)
  const story = () => events.map((event) => (event.kind === 'gap' ? 'gap' : `${event.kind} ${event.name}`))
  return {
    events,
    ended,
    story,
    /** Of the last event, also if the test has dropped it. */
    cursor: () => last,
    sees: async (...expected: string[]) => {
      await until('the events arrive', () => events.length >= expected.length || error !== undefined)
      expect(story()).toEqual(expected)
    },
    async stop() {
      controller.abort()
      return ended
    },
  }
}

async function counted(operator: pg.Client, table: string): Promise<number> {
  const { rows } = await operator.query(`SELECT count(*)::int AS n FROM watched.${table}`)
  return rows[0].n
}

/** Until the watcher has a position in the log. */
async function registered(operator: pg.Client, watchers = 1): Promise<void> {
  await until('it is registered', async () => (await counted(operator, 'watchers')) === watchers)
}

/** Sends one acquire as a backend does, in a transaction of the test. */
async function takeBy(operator: pg.Client, name: string, session: number): Promise<void> {
  const { rows } = await operator.query(applySql('watched', [acquiring(name, `${name}.secret`, { session })]))
  expect(rowsOf(rows[0].answer)[0]?.slice(0, 3)).toEqual(['g', `${name}.secret`, 'granted'])
}

/** As if no watcher had prolonged it for a minute. */
async function lapse(operator: pg.Client): Promise<void> {
  await operator.query(
    "UPDATE watched.logs SET watched_until = now() - interval '1 second', written_by = pg_current_xact_id()",
  )
}

/** Many events of one transaction, as if they had happened. */
async function pretend(operator: pg.Client, count: number): Promise<void> {
  await operator.query(
    `SELECT watched.log_event('default', 'data', 'many/' || i, 'id', NULL, NULL, NULL) FROM generate_series(1, $1) AS i`,
    [count],
  )
}

describe.runIf(wanted('postgres'))('watching on postgres', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  async function setUp(stage: Stage) {
    const operator = await stage.operator()
    await operator.query('DROP SCHEMA IF EXISTS watched CASCADE')
    const backend = await stage.backend({ schema: 'watched', pollMs: 50 })
    const session = await openSession(backend, 600_000)
    const { rows } = await operator.query('SELECT no::int FROM watched.sessions')
    return { operator, backend, session, no: rows[0].no as number }
  }

  /** A watcher that is there, as it has seen something. */
  async function begun(backend: PostgresBackend, session: Awaited<ReturnType<typeof openSession>>) {
    const watcher = watching(backend, 'none')
    await until('it has begun', () => watcher.events.length > 0)
    watcher.events.length = 0
    const begin = exclusive('begin')
    await take(session, begin)
    await watcher.sees('acquired begin')
    watcher.events.length = 0
    return watcher
  }

  test('T82 without a watcher nothing is logged, and a watcher that leaves takes its registration back', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session } = await setUp(stage)
    await take(session, exclusive('x'))
    expect(await counted(operator, 'events')).toBe(0)
    expect(await counted(operator, 'logs')).toBe(0)
    const statements = backend.statistics.statements
    const held = exclusive('y')
    await take(session, held)
    await session.release(held, release, call())
    expect(backend.statistics.statements - statements).toBe(2)
    const watcher = await begun(backend, session)
    expect(await watcher.stop()).toBeUndefined()
    await registered(operator, 0)
  })

  test('every request of a batch is seen, as is one that is alone', async () => {
    await using stage = new Stage(server.url)
    const { backend, session } = await setUp(stage)
    const watcher = await begun(backend, session)
    const claims = ['a', 'b', 'c'].map((name) => exclusive(name))
    const batches = backend.statistics.batches
    await Promise.all(claims.map((claim) => take(session, claim)))
    await Promise.all(claims.map((claim) => session.release(claim, release, call())))
    expect(backend.statistics.batches - batches).toBe(2)
    const alone = exclusive('d')
    await take(session, alone)
    await session.release(alone, release, call())
    await until('the events arrive', () => watcher.events.length >= 8)
    const expected = ['a', 'b', 'c', 'd'].flatMap((name) => [`acquired ${name}`, `released ${name}`])
    expect(watcher.story().sort()).toEqual(expected.sort())
  })

  test('a transaction that commits after later ones is seen, also by a watcher that goes on from a cursor', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session, no } = await setUp(stage)
    const watcher = await begun(backend, session)
    await operator.query('BEGIN')
    await takeBy(operator, 'slow', no)
    await take(session, exclusive('quick'))
    await watcher.sees('acquired quick')
    const cursor = watcher.cursor()
    const [before, between] = [watching(backend, cursor), watching(backend, cursor)]
    await operator.query('COMMIT')
    await take(session, exclusive('last'))
    await watcher.sees('acquired quick', 'acquired slow', 'acquired last')
    await before.sees('acquired slow', 'acquired last')
    await between.sees('acquired slow', 'acquired last')
    const late = watching(backend, watcher.events[1]?.cursor)
    await late.sees('acquired last')
    const all = watching(backend, cursor)
    await all.sees('acquired slow', 'acquired last')
  })

  test('a transaction that looked for the log before it was opened is waited for, and is in the picture', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, no } = await setUp(stage)
    const looker = await stage.operator()
    await operator.query('BEGIN')
    await takeBy(operator, 'early', no)
    const watcher = watching(backend, 'none')
    await registered(looker)
    // It asks for the writers again and again.
    const statements = backend.statistics.statements
    await until('it waits', () => backend.statistics.statements > statements + 3)
    expect(watcher.events).toEqual([])
    await operator.query('COMMIT')
    await watcher.sees('gap', 'acquired early')
  })

  test('a log that its watchers let lapse is closed by the next event, and a cursor of it is a gap', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session } = await setUp(stage)
    const watcher = await begun(backend, session)
    const cursor = watcher.cursor()
    await watcher.stop()
    await registered(operator, 0)
    await take(session, exclusive('x'))
    expect(await counted(operator, 'events')).toBe(2)
    await lapse(operator)
    // No event has closed it: it has everything.
    const back = watching(backend, cursor)
    await back.sees('acquired x')
    await back.stop()
    await registered(operator, 0)
    await lapse(operator)
    await take(session, exclusive('y'))
    expect(await counted(operator, 'logs')).toBe(0)
    // The call that closes the log leaves the events to the next watcher.
    expect(await counted(operator, 'events')).toBe(2)
    const late = watching(backend, cursor)
    await late.sees('gap', 'acquired begin', 'acquired x', 'acquired y')
    expect(await counted(operator, 'events')).toBe(0)
    await take(session, exclusive('z'))
    await late.sees('gap', 'acquired begin', 'acquired x', 'acquired y', 'acquired z')
  })

  test('a watcher that follows while its log is closed gets a gap and the current holders', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session } = await setUp(stage)
    const watcher = await begun(backend, session)
    await lapse(operator)
    await take(session, exclusive('y'))
    // The watcher finds out when it prolongs, or when a notification makes it look.
    await operator.query(
      'SELECT pg_notify(listening, $1) FROM (SELECT channel AS listening FROM watched.watchers) w',
      ['event'],
    )
    const other = watching(backend, 'none')
    await other.sees('gap', 'acquired begin', 'acquired y')
    await operator.query("SELECT pg_notify(channel, 'event') FROM watched.watchers")
    await watcher.sees('gap', 'acquired begin', 'acquired y')
    await take(session, exclusive('z'))
    await watcher.sees('gap', 'acquired begin', 'acquired y', 'acquired z')
  })

  test('lost connections are no gap, also the one that listens', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session } = await setUp(stage)
    const watcher = await begun(backend, session)
    await until('it listens', () => backend.hears)
    await operator.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()',
    )
    await until('it can be reached again', async () => {
      try {
        await take(session, exclusive('x'))
        return true
      } catch {
        return false
      }
    })
    await watcher.sees('acquired x')
  })

  test('a slow watcher gets every event once, and a cursor in the middle of a large transaction can be gone on from', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session } = await setUp(stage)
    await take(session, exclusive('held'))
    const reading = backend.watch('', { cursor: 'none' }, call())[Symbol.asyncIterator]()
    onTestFinished(async () => {
      await reading.return?.()
    })
    const next = async () => (await reading.next()).value as WatchEvent
    expect([(await next()).kind, (await next()).kind]).toEqual(['gap', 'acquired'])
    const quick = await begun(backend, session)
    const seen = [await next()]
    // The reader has more for the slow one than it keeps for it.
    for (const count of [4_500, 1_600]) await pretend(operator, count)
    await until('the reader has read them', () => quick.events.length === 6_100)
    await take(session, exclusive('end'))
    while (!seen.some((event) => 'name' in event && event.name === 'end')) seen.push(await next())
    const names = seen.flatMap((event) =>
      'name' in event && event.name.startsWith('many/') ? [event.name] : [event.kind],
    )
    expect(names.filter((name) => name.startsWith('many/'))).toEqual([
      ...Array.from({ length: 4_500 }, (_, i) => `many/${i + 1}`),
      ...Array.from({ length: 1_600 }, (_, i) => `many/${i + 1}`),
    ])
    expect(names).not.toContain('gap')
    for (const index of [0, 998, 999, 1_000, 2_500, 4_499, 4_500]) {
      const resumed = watching(backend, seen[index]?.cursor)
      await until('the rest arrives', () => resumed.events.length >= seen.length - index - 1)
      const told = (events: readonly WatchEvent[]) =>
        events.map((event) => ('name' in event ? event.name : event.kind))
      expect(told(resumed.events)).toEqual(told(seen.slice(index + 1)))
      await resumed.stop()
    }
  })

  test('the log keeps the last events: an older cursor is a gap, and a long foreign transaction is none', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session } = await setUp(stage)
    const foreign = await stage.operator()
    await foreign.query('BEGIN')
    await foreign.query('SELECT pg_current_xact_id()')
    const watcher = await begun(backend, session)
    const old = watcher.cursor()
    for (let made = 0; made < 1.6 * KEPT_EVENTS; made += 1_000) {
      await pretend(operator, 1_000)
      await until('they arrive', () => watcher.events.length >= made + 1_000)
    }
    await take(session, exclusive('x'))
    await until('they arrive', () => watcher.story().includes('acquired x'))
    expect(await counted(operator, 'events')).toBeLessThan(1.3 * KEPT_EVENTS)
    await foreign.query('COMMIT')
    await take(session, exclusive('y'))
    await until('it goes on', () => watcher.story().includes('acquired y'))
    expect(watcher.story()).not.toContain('gap')
    const recent = watching(backend, watcher.cursor())
    await take(session, exclusive('z'))
    await recent.sees('acquired z')
    const tooOld = watching(backend, old)
    await tooOld.sees('gap', 'acquired begin', 'acquired x', 'acquired y', 'acquired z')
  })

  test('a cursor is a gap if a transaction that was open then has been cut off since', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session, no } = await setUp(stage)
    const watcher = await begun(backend, session)
    await operator.query('BEGIN')
    await takeBy(operator, 'slow', no)
    const writer = await stage.operator()
    for (let made = 0; made < KEPT_EVENTS - 1_000; made += 500) await pretend(writer, 500)
    await take(session, exclusive('quick'))
    await until('it is seen', () => watcher.story().includes('acquired quick'))
    const cursor = watcher.cursor()
    await watcher.stop()
    await operator.query('COMMIT')
    for (let made = 0; made < 3_000; made += 500) await pretend(writer, 500)
    // Otherwise the cursor would be too old anyway, or nothing was cut.
    const { rows } = await operator.query(
      `SELECT count(*) FILTER (WHERE name = 'slow')::int AS slow, count(*) FILTER (WHERE name = 'quick')::int AS quick
      FROM watched.events`,
    )
    expect(rows).toEqual([{ slow: 0, quick: 1 }])
    await watching(backend, cursor).sees('gap', 'acquired begin', 'acquired quick', 'acquired slow')
  })

  test('only watchers whose registration has not expired are notified', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session } = await setUp(stage)
    await begun(backend, session)
    const listener = await stage.operator()
    const heard: string[] = []
    listener.on('notification', ({ channel }) => heard.push(channel))
    await listener.query('LISTEN expired')
    await listener.query('LISTEN present')
    await operator.query(`
      INSERT INTO watched.watchers VALUES ('default', 'expired', now() - interval '1 second'),
        ('default', 'present', now() + interval '1 minute')`)
    await take(session, exclusive('x'))
    await until('one is notified', () => heard.includes('present'))
    // Notifications of one transaction come together, before the answer to a later query.
    await listener.query('SELECT 1')
    expect(heard).toEqual(['present'])
  })

  test.each(['alone', 'in turns with another namespace'])(
    'the log stays short after its watchers have left, if it is written %s',
    async (written) => {
      await using stage = new Stage(server.url)
      const { operator, backend, session } = await setUp(stage)
      const watcher = await begun(backend, session)
      const old = watcher.cursor()
      await watcher.stop()
      await registered(operator, 0)
      if (written !== 'alone') await operator.query("SELECT watched.open_log('other', 'nobody')")
      const namespaces = written === 'alone' ? ['default'] : ['default', 'other']
      for (let made = 0; made < 2 * KEPT_EVENTS; made += 500)
        await operator.query(
          `SELECT watched.log_event(namespace, 'data', 'many/' || i, 'id', NULL, NULL, NULL)
          FROM generate_series(1, 500) AS i, unnest($1::text[]) AS namespace ORDER BY i, namespace`,
          [namespaces],
        )
      for (const namespace of namespaces) {
        const { rows } = await operator.query(
          'SELECT count(*)::int AS n FROM watched.events WHERE namespace = $1',
          [namespace],
        )
        expect(rows[0].n).toBeGreaterThanOrEqual(KEPT_EVENTS)
        expect(rows[0].n).toBeLessThan(1.3 * KEPT_EVENTS)
      }
      const back = watching(backend, old)
      await back.sees('gap', 'acquired begin')
    },
  )

  test.each([
    { restored: 'with events of later transactions', cut: '0' },
    { restored: 'with a cut at a later transaction', cut: '1000000' },
  ])(
    'a log that came with a dump of another server, $restored, is opened anew: one gap, then every event once',
    async ({ cut }) => {
      await using stage = new Stage(server.url)
      const { operator, backend, session } = await setUp(stage)
      const watcher = await begun(backend, session)
      await take(session, exclusive('old'))
      await watcher.sees('acquired old')
      const cursor = watcher.cursor()
      await watcher.stop()
      await registered(operator, 0)
      // As a restore does: the rows are written again, and say what they said.
      await operator.query(`
      CREATE TEMP TABLE dumped_logs AS TABLE watched.logs;
      CREATE TEMP TABLE dumped_events AS TABLE watched.events;
      DELETE FROM watched.logs;
      DELETE FROM watched.events;
      UPDATE dumped_logs SET cut = '${cut}';
      UPDATE dumped_events SET xid = '1000000';
      INSERT INTO watched.logs SELECT * FROM dumped_logs;
      INSERT INTO watched.events OVERRIDING SYSTEM VALUE SELECT * FROM dumped_events`)
      const other = watching(backend)
      await until('it has begun', async () => {
        const tick = exclusive('tick')
        await take(session, tick)
        await session.release(tick, release, call())
        return other.events.length > 0
      })
      const back = watching(backend, cursor)
      await back.sees('gap', 'acquired begin', 'acquired old')
      for (const name of ['x', 'y', 'z']) {
        await take(session, exclusive(name))
        await until('it is seen', () => back.story().includes(`acquired ${name}`))
      }
      await back.sees('gap', 'acquired begin', 'acquired old', 'acquired x', 'acquired y', 'acquired z')
      await until('it is seen', () => other.story().includes('acquired z'))
      const told = other.story().filter((event) => !event.endsWith(' tick'))
      expect(told).toEqual(['acquired x', 'acquired y', 'acquired z'])
      // The new log is kept.
      await watching(backend, back.events[2]?.cursor).sees('acquired x', 'acquired y', 'acquired z')
    },
  )

  test('a cursor that is ahead of the server is a gap', async () => {
    await using stage = new Stage(server.url)
    const { backend, session } = await setUp(stage)
    const watcher = await begun(backend, session)
    const [log] = watcher.cursor().split('/')
    const ahead = watching(backend, `${log}/1000000`)
    await ahead.sees('gap', 'acquired begin')
    await take(session, exclusive('x'))
    await ahead.sees('gap', 'acquired begin', 'acquired x')
  })

  test('a claim whose session ends without a word is seen to expire, and its waiter to give up, although no other client looks', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session } = await setUp(stage)
    const watcher = await begun(backend, session)
    const other = await stage.backend({ schema: 'watched' })
    const mortal = await openSession(other, 500)
    await take(mortal, exclusive('x'))
    const waits = enqueued(mortal, exclusive('begin'), call())
    waits?.catch(() => {})
    await watcher.sees('acquired x', 'waiting begin', 'expired x', 'gave-up begin').catch(() => {})
    expect(watcher.story().sort()).toEqual(['acquired x', 'expired x', 'gave-up begin', 'waiting begin'])
    await session.close(call())
    await until('the release is seen', () => watcher.story().includes('released begin'))
    expect(await counted(operator, 'holders')).toBe(0)
  })

  test('throws when its backend is closed, and when the schema is gone', async () => {
    await using stage = new Stage(server.url)
    const { operator, backend, session } = await setUp(stage)
    const watcher = await begun(backend, session)
    await backend[Symbol.asyncDispose]()
    expect(await watcher.stop()).toMatchObject({ code: 'CLOSED' })
    await operator.query('DROP SCHEMA watched CASCADE')
    const other = await stage.backend({ schema: 'watched' })
    await operator.query('DROP SCHEMA watched CASCADE')
    await expect(watching(other).ended).resolves.toMatchObject({ code: 'UNSUPPORTED' })
  })

  test('after a crash of the server there is a gap, and the current holders', async () => {
    await using own = await startPostgres()
    await using stage = new Stage(own.url)
    const { backend, session } = await setUp(stage)
    const watcher = await begun(backend, session)
    await own.kill()
    await own.restart()
    await until('it has noticed', () => watcher.events.length > 0)
    await watcher.sees('gap', 'acquired begin')
    await take(session, exclusive('x'))
    await watcher.sees('gap', 'acquired begin', 'acquired x')
  })
})
