// The rules of DESIGN for locks, expiry and tokens, each shown with and without it.
import { plantedSchema } from 'holdfast-lab/bugs'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { NamingSession } from '../../../../test/naming-grants.ts'
import { call, exclusive, openSession, Stage, take, until } from '../../../../test/postgres/stage.ts'
import { Operator } from '../../../testing/conformance/operator.ts'

/** Where the locks are, and the statements that make it if they are not the library's. */
interface Schema {
  readonly schema: string
  readonly schemaSql?: string
}

describe.runIf(wanted('postgres'))('postgres', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  test('names, notes and data arrive as they are, whatever they contain, alone and in a batch', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'odd' })
    const session = await openSession(backend)
    const odd = [
      '"',
      '\\',
      '\\"',
      ',',
      '(a)',
      '{b}',
      ' ',
      'NULL',
      'null',
      "o'clock",
      '$1',
      'ä/🔒',
      'a\nb',
      '-1',
    ]
    const claims = odd.map((name) => exclusive(`x${name}`, { note: name, owner: name }))
    const [alone = exclusive('x'), ...others] = claims
    await take(session, alone)
    await Promise.all(others.map((claim) => take(session, claim)))
    for (const { name, note } of claims)
      expect((await backend.inspect(name, call()))?.holders).toMatchObject([{ note, owner: note }])
    for (const data of ['', ...odd]) {
      expect(await session.setData(alone, data, call())).toBe('stored')
      expect((await backend.inspect(alone.name, call()))?.data).toBe(data)
    }
    expect(
      await Promise.all(claims.map((claim) => session.release(claim, { keepForMs: 0 }, call()))),
    ).toEqual(claims.map(() => 'released'))
  })

  /**
   * A keep-alive that was in time, whose commit takes long: it waits between its update and its commit, and meanwhile
   * the old expiry passes. The moment is made with a trigger that waits for an advisory lock at the end of the transaction.
   */
  async function holdersAfterSlowKeepAlive({ schema, ...surroundings }: Schema): Promise<number> {
    await using stage = new Stage(server.url)
    const [keeping, taking] = [
      await stage.backend({ schema }, surroundings),
      await stage.backend({ schema }, surroundings),
    ]
    const operator = await stage.operator()
    await operator.query(`
      CREATE FUNCTION ${schema}.slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock(1, 1); RETURN NULL; END $$;
      CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON ${schema}.sessions DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (old.expires_at < new.expires_at) EXECUTE FUNCTION ${schema}.slow()`)
    const holder = await openSession(keeping)
    const taker = await openSession(taking)
    const held = exclusive('x')
    await take(holder, held)

    await operator.query('SELECT pg_advisory_lock(1, 1)')
    // Long enough that the keep-alive is in time, short enough to wait for.
    await operator.query(`UPDATE ${schema}.sessions SET expires_at = clock_timestamp() + interval '2 seconds'
      WHERE no = (SELECT session FROM ${schema}.holders)`)
    const kept = holder.keepAlive({ held: [held], waiting: [] }, call())
    await until('the commit of the keep-alive is in flight', () => isWaiting(operator, 'keep_alive'))
    await until('the old expiry has passed', async () => {
      const { rows } =
        await operator.query(`SELECT expires_at <= clock_timestamp() AS passed FROM ${schema}.sessions
        WHERE no = (SELECT session FROM ${schema}.holders)`)
      return rows[0].passed
    })
    const tried = taker.tryAcquire(exclusive('x'), call())
    // With the rule it waits for the holder's row; without it, it has an answer at once.
    await Promise.race([tried, until('the taker waits', () => isWaiting(operator, 'apply_acquire'))])
    await operator.query('SELECT pg_advisory_unlock(1, 1)')
    const [keptKind, triedKind] = [(await kept).kind, (await tried).kind]
    return Number(keptKind === 'alive') + Number(triedKind === 'granted')
  }

  test('T66 expiry is judged while holding the row of the session: a slow keep-alive keeps its lease', async () => {
    expect(await holdersAfterSlowKeepAlive({ schema: 'judged' })).toBe(1)
  })

  test('T66 planted: judged without the row, the same moment has two holders', async () => {
    expect(await holdersAfterSlowKeepAlive(plantedSchema('T66-unjudged'))).toBe(2)
  })

  /** Many clients lock one name; how many tokens were lower than one that was granted before it. */
  async function tokensOutOfOrder({ schema, ...surroundings }: Schema): Promise<number> {
    await using stage = new Stage(server.url)
    const backends = []
    for (let i = 0; i < 6; i++)
      backends.push(await stage.backend({ schema, clients: { max: 2 } }, surroundings))
    const granted: bigint[] = []
    const work = async (session: NamingSession<'fenced'>) => {
      while (granted.length < 240) {
        const request = exclusive('x')
        const result = await session.tryAcquire(request, call())
        if (result.kind !== 'granted') continue
        // Only one holds it, so this is the order of the grants.
        granted.push(result.grant.token)
        await session.release(request, { keepForMs: 0 }, call())
      }
    }
    await Promise.all(backends.map(async (backend) => work(await openSession(backend))))
    return granted.filter((token, index) => granted.slice(0, index).some((before) => before > token)).length
  }

  test('T67 tokens are drawn after the lock, one at a time: under contention none is out of order', async () => {
    expect(await tokensOutOfOrder({ schema: 'ordered' })).toBe(0)
  })

  test('T67 planted: a sequence that connections cache gives out tokens in the wrong order', async () => {
    expect(await tokensOutOfOrder(plantedSchema('T67-cached'))).toBeGreaterThan(0)
  })

  test('T67 planted: a token that is drawn before the lock is won can be older than the one before it', async () => {
    expect(await tokensOutOfOrder(plantedSchema('T67-early'))).toBeGreaterThan(0)
  })

  test('no deadlock between batches that overlap at random, expiries included', async () => {
    await using stage = new Stage(server.url)
    const operator = await stage.operator()
    const names = Array.from({ length: 12 }, (_, i) => `n${i}`)
    const backends = []
    for (let i = 0; i < 4; i++)
      backends.push(await stage.backend({ namespace: 'overlapping', clients: { max: 4 } }))
    let seed = 7
    const random = (below: number) => {
      seed = (seed * 48_271) % 2_147_483_647
      return seed % below
    }
    const round = async (session: NamingSession<'fenced'>) => {
      const requests = Array.from({ length: 8 }, () => exclusive(names[random(names.length)] as string))
      const results = await Promise.all(requests.map((request) => session.tryAcquire(request, call())))
      const held = requests.filter((_, index) => results[index]?.kind === 'granted')
      await session.keepAlive({ held, waiting: [] }, call())
      // Some are given back, some are abandoned, and some are left to expire.
      await Promise.all(
        held.map((request) => {
          const choice = random(4)
          if (choice === 0) return session.abandon(request, call())
          if (choice === 1) return undefined
          return session.release(request, { keepForMs: 0 }, call())
        }),
      )
    }
    await Promise.all(
      backends.flatMap((backend) =>
        [100, 200, 5_000].map(async (ttlMs) => {
          for (let i = 0; i < 12; i++) {
            const session = await openSession(backend, ttlMs)
            await round(session)
            await new Operator(backend).force(names[random(names.length)] as string)
            if (random(2) === 0) await session.close(call())
          }
        }),
      ),
    )
    const { rows } = await operator.query(
      'SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()',
    )
    expect(rows[0].deadlocks).toBe(0)
    expect(backends.some(({ statistics }) => statistics.batches < statistics.items)).toBe(true)
  })
})

/** Whether a statement that contains this waits for a lock. */
async function isWaiting(operator: pg.Client, text: string): Promise<boolean> {
  const { rows } = await operator.query(
    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '(%'",
    [text],
  )
  return rows.length > 0
}
