/**
 * A request that is alone answers, and leaves behind, what it does in a batch, and what the step for rare cases does (`settle`,
 * which a batch of one consists of).
 */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { acquiring, applySql, batchSql, rowsOf } from '../../../../test/postgres/requests.ts'
import { Stage } from '../../../../test/postgres/stage.ts'
import type { Request } from './batches.ts'

const schema = 'short'
/** Tokens and positions of this call are larger; those that states have are smaller. */
const NEXT = 1_000
const columns = {
  holders: `name, attempt, session, token, mode, weight, capacity, lock_delay_ms, note, previous_data, owner,
    held_since > now() - interval '1 minute' AS is_new`,
  waiters: `name, place, attempt, session, mode, weight, capacity, lock_delay_ms, note, channel, owner, until IS NULL AS for_ever`,
  names: 'name, capacity, data, closed_until > clock_timestamp() AS is_closed',
  marks: 'session, attempt, kind',
  sessions: 'no, ended, has_marks',
  events: 'kind, name, id, holder, owner, token',
}
const tables = Object.keys(columns)
const stored = Object.entries(columns).map(
  ([table, its]) =>
    `SELECT '${table}' AS table, jsonb_agg(row ORDER BY row) AS rows
      FROM (SELECT ${its} FROM ${table}) AS row WHERE to_jsonb(row)->>'name' IS DISTINCT FROM 'beside'`,
)

describe.runIf(wanted('postgres'))('short ways on postgres', () => {
  let server: Server
  let stage: Stage
  let sql: pg.Client
  const heard: string[] = []
  beforeAll(async () => {
    server = await startPostgres()
    stage = new Stage(server.url)
    await stage.backend({ schema })
    sql = await stage.operator()
    await sql.query(`SET search_path = ${schema}; LISTEN others; LISTEN marker`)
    sql.on('notification', ({ channel, payload }) => heard.push(`${channel} ${payload}`))
  })
  afterAll(async () => {
    await stage?.[Symbol.asyncDispose]()
    await server?.stop()
  })

  /** The answer, whether the commit waits for the disk, who is notified, and what is stored. */
  async function outcomeOf(text: string, prepare: readonly string[]): Promise<unknown> {
    await sql.query(`${[...tables, 'logs', 'watchers'].map((table) => `DELETE FROM ${table}`).join(';')}; SELECT setval('tokens', ${NEXT}), setval('places', ${NEXT});
      INSERT INTO sessions (no, id, namespace, holder, ttl_ms, expires_at) OVERRIDING SYSTEM VALUE
      SELECT no, no, 'default', 'holder ' || no, 60000, now() + interval '60 s' FROM generate_series(1, 3) AS no;
      INSERT INTO holders VALUES ('default', 'beside', 'beside', 3, 3, 'exclusive', 1, 1, 0, now())`)
    for (const each of prepare) await sql.query(each)
    await sql.query('BEGIN')
    const { rows } = await sql.query(text)
    const { rows: durable } = await sql.query('SHOW synchronous_commit')
    await sql.query('COMMIT; NOTIFY marker')
    // The last of this connection's own notifications.
    while (!heard.includes('marker ')) await new Promise((resolve) => setImmediate(resolve))
    const left = (await sql.query(stored.join(' UNION ALL '))).rows
    const answer = rowsOf(rows[0].answer)
      .filter(([, attempt]) => attempt !== 'beside')
      .map(([...fields]) => fields.slice(0, 1 + fields.findLastIndex((field) => field !== null)))
    const seen = JSON.stringify({ answer, ...durable[0], heard: heard.splice(0), left }, null, 1)
    return seen
      .replaceAll(/\b1\d{3}\b/g, 'new')
      .replaceAll(/\b\d{4,6}(\.\d+)?\b/g, (ms) => String(Math.round(Number(ms) / 20_000)))
  }

  const holder = (
    rest: Partial<
      Record<'attempt' | 'session' | 'token' | 'weight' | 'capacity' | 'delay', string | number>
    > = {},
  ) => {
    const { attempt = 'attempt', session = 1, token = 7, weight = 1, capacity = 1, delay = 0 } = rest
    return `INSERT INTO holders VALUES ('default', 'x', '${attempt}', ${session}, ${token}, '${capacity === 1 ? 'exclusive' : 'permits'}',
      ${weight}, ${capacity}, ${delay}, now() - interval '1 hour', 'note', 'data before', 'owner')`
  }
  const waiter = (
    attempt: string,
    rest: { session?: number; channel?: string; until?: string; weight?: number; capacity?: number } = {},
  ) => {
    const { session = 2, channel = 'others', until = 'NULL', weight = 1, capacity = 1 } = rest
    return `INSERT INTO waiters VALUES ('default', 'x', nextval('places') - 500, '${attempt}', ${session}, 'exclusive', ${weight}, ${capacity}, 0, now(),
      'note', '${channel}', 'owner', ${until})`
  }
  const sessionIs = (no: number, what: string) => `UPDATE sessions SET ${what} WHERE no = ${no}`
  const expired = "expires_at = now() - interval '1 s'"
  const ended = "ended = 'expired', ended_at = now(), expires_at = now() - interval '1 s'"
  const watched = "SELECT open_log('default', 'watcher')"
  const closed = (until: string) => `INSERT INTO names VALUES ('default', 'x', 1, 'data', now() ${until})`

  const states: Readonly<Record<string, readonly string[]>> = {
    'nothing is stored': [],
    'it is held by this grant': [holder()],
    'it is held by another grant of this attempt': [holder({ token: 8 })],
    'it is held by this attempt of another session': [holder({ session: 2 })],
    'this session holds it by another attempt': [holder({ attempt: 'other' })],
    'another session holds it': [holder({ attempt: 'other', session: 2 })],
    'others have permits': [holder({ attempt: 'other', session: 2, capacity: 3 })],
    'this attempt and others have permits': [
      holder({ capacity: 3 }),
      holder({ attempt: 'other', session: 2, token: 8, capacity: 3 }),
    ],
    'the session of its holder has expired': [
      holder({ attempt: 'other', session: 2 }),
      sessionIs(2, expired),
    ],
    'the session of its holder was found to be over': [
      holder({ attempt: 'other', session: 2 }),
      sessionIs(2, ended),
    ],
    'a lock-delay begins': [holder({ attempt: 'other', session: 2, delay: 60_000 }), sessionIs(2, expired)],
    'it is held with a lock-delay': [holder({ delay: 60_000 })],
    'it was kept closed': [closed("- interval '1 s'")],
    'it is kept closed': [closed("+ interval '60 s'")],
    'it is held and has data': [holder(), closed("- interval '1 s'")],
    'it is held, and a waiter of another process is next': [holder(), waiter('next'), waiter('last')],
    'it is held, and a waiter of this process is next': [holder(), waiter('next', { channel: 'nobody' })],
    'it is held, and the next waiter has no time left': [
      holder(),
      waiter('late', { until: 'now()' }),
      waiter('next'),
    ],
    'it is held, and the session of the next waiter is over': [
      holder(),
      waiter('gone'),
      waiter('next', { session: 3 }),
      sessionIs(2, ended),
    ],
    'it is held, and the session of the next waiter has expired': [
      holder(),
      waiter('gone'),
      waiter('next', { session: 3 }),
      sessionIs(2, expired),
    ],
    'permits are held and waited for': [
      holder({ capacity: 3 }),
      holder({ attempt: 'other', session: 2, token: 8, weight: 2, capacity: 3 }),
      waiter('next', { capacity: 3 }),
      waiter('last', { capacity: 3 }),
    ],
    'it is waited for, and its holder was deleted': [waiter('next')],
    'this attempt waits': [holder({ attempt: 'other', session: 2 }), waiter('attempt', { session: 1 })],
    'the attempt was abandoned': [
      "INSERT INTO marks VALUES (1, 'attempt', 'abandoned')",
      sessionIs(1, 'has_marks = true'),
    ],
    'another attempt was abandoned': [
      "INSERT INTO marks VALUES (1, 'other', 'abandoned')",
      sessionIs(1, 'has_marks = true'),
    ],
    'its session has expired': [sessionIs(1, expired)],
    'it is held, and its session has expired': [holder(), sessionIs(1, expired)],
    'it is held, and its session is over': [holder(), sessionIs(1, ended)],
    'its session is of another namespace': [sessionIs(1, "namespace = 'elsewhere'")],
    'it is watched': [watched],
    'it is held and watched': [watched, holder()],
    'it is held, waited for and watched': [watched, holder(), waiter('next')],
  }
  const acquire = acquiring('x', 'attempt', { weight: 1, capacity: 1, text: 'a | note', owner: 'owner' })
  const requests: readonly (readonly [string, Request])[] = [
    ['an acquire', acquire],
    ['an acquire that waits', { ...acquire, waits: true, wait_ms: 60_000 }],
    ['an acquire that waits behind one at most', { ...acquire, waits: true, max_waiters: 1 }],
    ['an acquire whose time is over', { ...acquire, waits: true, wait_ms: 0 }],
    ['an acquire of a permit', { ...acquire, mode: 'permits', capacity: 3, ms: 60_000 }],
    ['a release', { op: 'r', name: 'x', attempt: 'attempt', session: 1, token: '7', ms: 0 }],
  ]

  describe.each(Object.entries(states))('when %s', (_, prepare) => {
    test.each(requests)('%s', async (_, request) => {
      const beside: Request = { op: 'r', name: 'beside', attempt: 'beside', session: 3, token: '3', ms: 0 }
      const alone = await outcomeOf(applySql(schema, [request]), prepare)
      expect(await outcomeOf(batchSql(schema, [request]), prepare), 'rare').toEqual(alone)
      expect(await outcomeOf(batchSql(schema, [beside, request]), prepare), 'batch').toEqual(alone)
    })
  })
})
