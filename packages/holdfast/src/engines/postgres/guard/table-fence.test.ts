/** The trigger, from the side of every client: `psql`, and connections that know nothing of Holdfast. */
import assert from 'node:assert/strict'
import { psql, type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { fence } from '../../../../test/guard-table.ts'
import { type Fence, makeFence } from '../../../base/fence.ts'
import { formatFence } from '../../../base/fence-text.ts'
import { memoryGuard } from '../../../guards/memory.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import { postgresGuard, showFence, tableFence, writeRefusalOf } from './postgres-guard.ts'

describe.runIf(wanted('postgres'))('a fenced table', () => {
  let server: Server
  let pool: pg.Pool
  const fenced = tableFence({ table: 'accounts', name: 'accounts' })
  const byRow = tableFence({ table: 'public.accounts', name: 'account/', column: 'id' })
  const byIssuer = tableFence({ table: 'accounts', name: 'accounts', issuers: ["o'ne", 'tw\\"o'] })

  beforeAll(async () => {
    server = await startPostgres()
    pool = new pg.Pool({ connectionString: server.url, max: 6 })
    await pool.query('CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)')
    await fenced.install(pool)
  })
  afterAll(async () => {
    await pool.end()
    await server.stop()
  })
  beforeEach(async () => {
    for (const each of [fenced, byRow, byIssuer]) await each.remove(pool)
    await pool.query('TRUNCATE accounts')
    await pool.query('INSERT INTO accounts VALUES (7, 100), (9, 0)')
    for (const table of ['guards', 'guard_names', 'guard_issuers'])
      await pool.query(`DELETE FROM holdfast.${table}`)
    await fenced.install(pool)
  })

  const balance = async (id = 7) =>
    (await pool.query('SELECT balance FROM accounts WHERE id = $1', [id])).rows[0]?.balance as number
  const accounts = (token: bigint, grant?: string) => fence(token, 'accounts', grant)
  const write = async (shown: string | null, statement = 'UPDATE accounts SET balance = 90 WHERE id = 7') => {
    const client = await pool.connect()
    try {
      await client.query('BEGIN')
      if (shown !== null) await client.query("SELECT set_config('holdfast.fence', $1, true)", [shown])
      await client.query(statement)
      await client.query('COMMIT')
      return 'written'
    } catch (error) {
      await client.query('ROLLBACK')
      const refusal = writeRefusalOf(error)
      if (refusal === null) throw error
      return refusal
    } finally {
      client.release()
    }
  }

  const connected = async (user: string) => {
    const client = new pg.Client({ connectionString: server.url.replace('postgres@', `${user}@`) })
    await client.connect()
    return Object.assign(client, { [Symbol.asyncDispose]: () => client.end() })
  }

  test('psql writes with a current fence, and neither without one nor with a stale one', async () => {
    const update = 'UPDATE accounts SET balance = balance - 10 WHERE id = 7'
    const withFence = (each: Fence) =>
      psql(server, `BEGIN; SET LOCAL holdfast.fence = '${formatFence(each)}'; ${update}; COMMIT`)
    await assert.rejects(psql(server, update), /needs an exclusive fence/)
    await withFence(accounts(5n))
    assert.equal(await balance(), 90)
    await assert.rejects(withFence(accounts(4n)), /token 4 was overtaken, the highest token seen is 5/)
    await withFence(accounts(5n))
    await withFence(accounts(6n))
    assert.equal(await balance(), 70)
  })

  test('every kind of write is refused without a fence, and reads are not: it guards writes only', async () => {
    for (const statement of [
      'INSERT INTO accounts VALUES (1, 1)',
      'INSERT INTO accounts VALUES (7, 1) ON CONFLICT (id) DO UPDATE SET balance = 1',
      'UPDATE accounts SET balance = 1',
      'DELETE FROM accounts',
      'TRUNCATE accounts',
      'WITH gone AS (DELETE FROM accounts RETURNING 1) SELECT count(*) FROM gone',
    ])
      assert.equal(await write(null, statement), 'missing', statement)
    assert.equal(await balance(), 100)
    assert.equal(fenced.guards, 'writes')
  })

  test('a fence for another name, a shared one, a forged text and a foreign issuer are refused', async () => {
    assert.equal(await write(formatFence(fence(5n, 'other'))), 'missing')
    assert.equal(await write(formatFence(makeFence({ ...accounts(5n), mode: 'shared' }))), 'missing')
    for (const text of [
      '5',
      'hf1/i/accounts/exclusive/0/g',
      'hf1/i/accounts/exclusive/9999999999999999999/g',
      'x y',
    ])
      assert.equal(await write(text), 'invalid', text)
    assert.equal(await write(''), 'missing')
    assert.equal(await write(formatFence(accounts(5n))), 'written')
    assert.equal(await write(formatFence(makeFence({ ...accounts(6n), issuer: 'other' }))), 'foreign')
  })

  test('T68 of two holders with one token the first passes, and the other never does', async () => {
    assert.equal(await write(formatFence(accounts(5n, 'one'))), 'written')
    assert.equal(await write(formatFence(accounts(5n, 'two'))), 'stale')
    assert.equal(await write(formatFence(accounts(5n, 'one'))), 'written')
  })

  test('T68 G5 of two holders with the token of the floor, only the one that was seen passes', async () => {
    assert.equal(await write(formatFence(accounts(5n, 'one'))), 'written')
    assert.equal(await postgresGuard({ client: pool }).prune({ untouchedForMs: 0 }), 1)
    assert.equal(await write(formatFence(accounts(5n, 'two'))), 'stale')
    assert.equal(await write(formatFence(accounts(5n, 'one'))), 'written')
  })

  test('a name under which rows are written is not forgotten, also if its fence stays the same', async () => {
    const guard = postgresGuard({ client: pool })
    const untouchedForMs = 3_600_000
    for (const token of [5n, 5n, 6n]) {
      await pool.query('UPDATE holdfast.guard_names SET touched_ms = 0')
      assert.equal(await write(formatFence(accounts(token))), 'written')
      assert.equal(await guard.prune({ untouchedForMs }), 0, `token ${token}`)
    }
    await pool.query('UPDATE holdfast.guard_names SET touched_ms = 0')
    assert.equal(await guard.prune({ untouchedForMs }), 1)
  })

  test('T42 the largest token is compared exactly', async () => {
    const largest = 2n ** 63n - 1n
    assert.equal(await write(formatFence(accounts(largest))), 'written')
    assert.equal(await write(formatFence(accounts(largest - 1n))), 'stale')
  })

  test('issuers that are named are trusted, and no others', async () => {
    await fenced.remove(pool)
    for (let time = 0; time < 2; time++) await byIssuer.install(pool)
    assert.equal(await write(formatFence(accounts(5n))), 'foreign')
    assert.equal(await write(formatFence(makeFence({ ...accounts(5n), issuer: 'tw\\"o' }))), 'written')
  })

  test('a pass does not outlive a change of the issuers in its own transaction', async () => {
    const update = 'UPDATE accounts SET balance = 90 WHERE id = 7;'
    const changed = [update, fenced.removeSql, byIssuer.installSql, update].join('\n')
    assert.equal(await write(formatFence(accounts(5n)), changed), 'foreign')
  })

  test('G5 with `enter` in the same transaction: reads count too, and the fence is shown by itself', async () => {
    const guard = postgresGuard({ client: pool })
    await guard.run(accounts(5n), async (tx) => {
      const { rows } = await tx.query('SELECT balance FROM accounts WHERE id = 7')
      await tx.query('UPDATE accounts SET balance = $1 WHERE id = 7', [rows[0].balance - 10])
    })
    assert.equal(await balance(), 90)
    await guard.run(accounts(6n), (tx) => tx.query('SELECT 1'))
    assert.equal(await write(formatFence(accounts(5n))), 'stale')
    // And the other way round: what the trigger has seen counts for the guard.
    assert.equal(await write(formatFence(accounts(9n))), 'written')
    await assert.rejects(
      guard.run(accounts(8n), () => {}),
      { code: 'FENCE_STALE' },
    )
  })

  test('the fence is gone with its transaction, also on the same connection', async () => {
    const single = new pg.Client({ connectionString: server.url })
    await single.connect()
    await single.query('BEGIN')
    await showFence(single, accounts(5n))
    await single.query('UPDATE accounts SET balance = 1 WHERE id = 7')
    await single.query('COMMIT')
    const after = single.query('UPDATE accounts SET balance = 2 WHERE id = 7')
    await assert.rejects(after, (error) => writeRefusalOf(error) === 'missing')
    await single.end()
  })

  test('row by row: each row needs the fence of its own name, and a moved one needs both', async () => {
    await fenced.remove(pool)
    await byRow.install(pool)
    const shown = [fence(5n, 'account/7'), fence(6n, 'account/8')].map((each) => formatFence(each))
    assert.equal(await write(shown[0] as string), 'written')
    assert.equal(await write(shown[0] as string, 'UPDATE accounts SET balance = 5 WHERE id = 9'), 'missing')
    assert.equal(await write(shown[0] as string, 'UPDATE accounts SET balance = 5'), 'missing')
    const move = 'UPDATE accounts SET id = 8 WHERE id = 7'
    assert.equal(await write(shown[0] as string, move), 'missing')
    assert.equal(await write(shown.join(' '), move), 'written')
    assert.equal(await write(shown[0] as string, 'INSERT INTO accounts VALUES (7, 1)'), 'written')
    assert.equal(await write(shown.join(' '), 'TRUNCATE accounts'), 'missing')
    assert.equal(
      await write(formatFence(fence(4n, 'account/7')), 'DELETE FROM accounts WHERE id = 7'),
      'stale',
    )
    await byRow.remove(pool)
    assert.equal(await write(null), 'written')
  })

  test('a table with partitions or child tables is refused, and so is what is no table', async () => {
    await pool.query(`
      CREATE TABLE logs (id int, at int) PARTITION BY RANGE (at);
      CREATE TABLE parents (id int, balance int);
      CREATE TABLE children () INHERITS (parents);
      CREATE VIEW seen AS SELECT * FROM accounts`)
    for (const table of ['logs', 'parents', 'seen']) {
      const refused = tableFence({ table, name: table })
      await assert.rejects(refused.install(pool), {
        code: 'UNSUPPORTED',
        message: new RegExp(`${table} is not a table, or has partitions or child tables`),
      })
      await refused.remove(pool)
    }
  })

  test('row by row: a trigger that changes the key after the check does not redirect the row', async () => {
    await fenced.remove(pool)
    await byRow.install(pool)
    await pool.query(`
      CREATE FUNCTION redirect() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id := NEW.id + 3; RETURN NEW; END';
      CREATE TRIGGER z_redirect BEFORE INSERT OR UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION redirect()`)
    for (const [from, statement] of [
      [7, 'UPDATE accounts SET balance = 5 WHERE id = 7'],
      [17, 'INSERT INTO accounts VALUES (17, 1)'],
    ] as const) {
      const shown = [from, from + 3].map((id) => formatFence(fence(5n, `account/${id}`)))
      assert.equal(await write(shown[0] as string, statement), 'missing', statement)
      assert.equal(await write(shown.join(' '), statement), 'written', statement)
    }
    await byRow.remove(pool)
    await pool.query('DROP FUNCTION redirect CASCADE')
  })

  test('a table that does not exist cannot be fenced; taking a fence away from it is no error', async () => {
    const misspelt = tableFence({ table: 'acounts', name: 'accounts' })
    await assert.rejects(misspelt.install(pool), {
      code: 'UNSUPPORTED',
      message: /relation "acounts" does not exist/,
    })
    await assert.rejects(pool.query(misspelt.installSql), { code: '42P01' })
    await misspelt.remove(pool)
  })

  test('fences on all partitions fence the whole, through the parent and directly', async () => {
    await pool.query(`
      CREATE TABLE visits (id int, at int) PARTITION BY RANGE (at);
      CREATE TABLE "visits'1" PARTITION OF visits FOR VALUES FROM (0) TO (10);
      CREATE TABLE visits_2 PARTITION OF visits FOR VALUES FROM (10) TO (20)`)
    const name = "100%'s visits"
    const partitions = ["visits'1", 'visits_2'].map((table) => tableFence({ table, name }))
    for (const each of [...partitions, ...partitions]) await each.install(pool)
    const shown = formatFence(fence(5n, name))
    for (const statement of [
      'INSERT INTO visits VALUES (1, 1), (2, 11)',
      'UPDATE visits SET at = at + 9 WHERE at = 1',
      'INSERT INTO visits_2 VALUES (1, 11)',
      'TRUNCATE visits',
      'TRUNCATE visits_2',
    ]) {
      assert.equal(await write(null, statement), 'missing', statement)
      assert.equal(await write(shown, statement), 'written', statement)
    }
    for (const each of partitions) await each.remove(pool)
    assert.equal(await write(null, 'INSERT INTO visits VALUES (1, 1)'), 'written')
  })

  test('options are changed in one transaction: the old fence is removed, the new one installed', async () => {
    await assert.rejects(byIssuer.install(pool), {
      code: 'UNSUPPORTED',
      message: /accounts has another fence/,
    })
    await pool.query(`BEGIN; ${fenced.removeSql} ${byIssuer.installSql} COMMIT`)
    assert.equal(await write(formatFence(accounts(5n))), 'foreign')
  })

  test('a fence of another schema is another fence', async () => {
    const elsewhere = tableFence({ table: 'accounts', name: 'accounts', schema: 'elsewhere' })
    await assert.rejects(elsewhere.install(pool), {
      code: 'UNSUPPORTED',
      message: /accounts has another fence/,
    })
    await elsewhere.remove(pool)
    assert.equal(await write(null), 'missing')
  })

  test('T80 a table of an owner who may not use the function is named when the fence is installed', async () => {
    await pool.query('DROP ROLE IF EXISTS lodger')
    await pool.query(`
      CREATE ROLE lodger;
      CREATE TABLE rooms (id int);
      ALTER TABLE rooms OWNER TO lodger`)
    const rooms = tableFence({ table: 'rooms', name: 'rooms' })
    await assert.rejects(rooms.install(pool), {
      code: 'UNSUPPORTED',
      message: /lodger, the owner of the table rooms, may not use the function holdfast\.fence_row\(\)/,
    })
    await pool.query('GRANT EXECUTE ON FUNCTION holdfast.fence_row() TO lodger')
    await rooms.install(pool)
    assert.equal(await write(formatFence(fence(5n, 'rooms')), 'INSERT INTO rooms VALUES (1)'), 'written')
    await pool.query('DROP TABLE rooms; DROP OWNED BY lodger; DROP ROLE lodger')
  })

  test('row by row: a column in which equal values can have two texts is refused', async () => {
    await pool.query(`
      CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
      CREATE DOMAIN account_id AS bigint;
      CREATE DOMAIN code AS char(3);
      CREATE DOMAIN any_code AS bpchar;
      CREATE DOMAIN cents AS numeric(10, 2);
      CREATE DOMAIN any_number AS numeric;
      CREATE TABLE keyed (a numeric, b numeric(10, 0), c text COLLATE nocase, d text, e timestamptz, f uuid, g float8,
        h account_id, i int GENERATED ALWAYS AS (1) STORED, j bpchar, k char(3), l any_code, m code, n any_number, o cents)`)
    for (const column of ['b', 'd', 'f', 'h', 'k', 'm', 'o']) {
      const keyed = tableFence({ table: 'keyed', name: 'key/', column })
      await keyed.install(pool)
      await keyed.remove(pool)
    }
    for (const column of ['a', 'c', 'e', 'g', 'i', 'j', 'l', 'n', 'none']) {
      const refused = tableFence({ table: 'keyed', name: 'key/', column }).install(pool)
      await assert.rejects(refused, { code: 'UNSUPPORTED', message: /cannot be the key of a fence/ }, column)
    }
  })

  test('T80 a role with USAGE alone cannot raise a mark of the guard through a table of its own', async () => {
    await pool.query('DROP ROLE IF EXISTS stranger')
    await pool.query('CREATE ROLE stranger LOGIN; GRANT USAGE ON SCHEMA holdfast TO stranger')
    await using stranger = await connected('stranger')
    const trap = (table: string) => `
      CREATE TRIGGER trap BEFORE INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION
        holdfast.fence_row('default', '', 'accounts')`
    await stranger.query('CREATE TEMPORARY TABLE mine (id int)')
    await assert.rejects(stranger.query(trap('mine')), /permission denied for function holdfast.fence_row/)

    // The right was granted for a while, and a trigger of the stranger was left behind.
    await pool.query(`
      GRANT EXECUTE ON FUNCTION holdfast.fence_row TO PUBLIC;
      CREATE SCHEMA strangers AUTHORIZATION stranger`)
    await stranger.query(`CREATE TABLE strangers.theirs (id int); ${trap('strangers.theirs')}`)
    await pool.query('REVOKE EXECUTE ON FUNCTION holdfast.fence_row FROM PUBLIC')
    await assert.rejects(stranger.query(trap('mine')), /permission denied for function holdfast.fence_row/)
    const raise = `
      SET holdfast.fence = '${formatFence(accounts(2n ** 63n - 1n))}';
      INSERT INTO strangers.theirs VALUES (1)`
    await assert.rejects(stranger.query(raise), /owner of the table strangers.theirs may not use/)
    assert.equal(await write(formatFence(accounts(5n))), 'written')
    await pool.query('DROP SCHEMA strangers CASCADE; DROP OWNED BY stranger; DROP ROLE stranger')
  })

  test('T80 an owner of tables who was granted the function may install a fence', async () => {
    await pool.query('DROP ROLE IF EXISTS tenant')
    await pool.query(`
      CREATE ROLE tenant LOGIN; GRANT USAGE ON SCHEMA holdfast TO tenant; CREATE SCHEMA tenants AUTHORIZATION tenant;
      GRANT SELECT ON holdfast.parts TO tenant`)
    const tenant = new pg.Pool({ connectionString: server.url.replace('postgres@', 'tenant@'), max: 1 })
    await tenant.query('CREATE TABLE tenants.flats (id int)')
    const flats = tableFence({ table: 'tenants.flats', name: 'flats' })
    await assert.rejects(flats.install(tenant), {
      code: 'UNSUPPORTED',
      message: /function holdfast.fence_row/,
    })
    await pool.query('GRANT EXECUTE ON FUNCTION holdfast.fence_row TO tenant')
    await flats.install(tenant)
    const insert = 'INSERT INTO tenants.flats VALUES (1)'
    assert.equal(await write(null, insert), 'missing')
    assert.equal(await write(formatFence(fence(5n, 'flats')), insert), 'written')
    await tenant.end()
    await pool.query('DROP SCHEMA tenants CASCADE; DROP OWNED BY tenant; DROP ROLE tenant')
  })

  test('who writes the table needs no rights on the guard’s tables', async () => {
    await pool.query('DROP ROLE IF EXISTS clerk')
    await pool.query('CREATE ROLE clerk LOGIN; GRANT SELECT, UPDATE ON accounts TO clerk')
    await using clerk = await connected('clerk')
    await clerk.query('BEGIN')
    await clerk.query(`SET LOCAL holdfast.fence = '${formatFence(accounts(5n))}'`)
    await clerk.query('UPDATE accounts SET balance = 1 WHERE id = 7')
    await clerk.query('COMMIT')
    await assert.rejects(clerk.query('SELECT * FROM holdfast.guard_names'), /permission denied/)
    assert.equal(await balance(), 1)
  })

  test('G5 a stale writer that waits for the newer one is refused when that has committed', async () => {
    const newer = await pool.connect()
    await newer.query('BEGIN')
    await newer.query("SELECT set_config('holdfast.fence', $1, true)", [formatFence(accounts(5n))])
    await newer.query('UPDATE accounts SET balance = 50 WHERE id = 7')
    const stale = write(formatFence(accounts(4n)))
    await new Promise((resolve) => setTimeout(resolve, 50))
    await newer.query('COMMIT')
    newer.release()
    assert.equal(await stale, 'stale')
    assert.equal(await balance(), 50)
  })

  test('G5 random fences are judged as by the rule that all guards share', async () => {
    const random = seededRandom(7)
    const reference = memoryGuard()
    const postgres = postgresGuard({ client: pool })
    const pick = (below: number) => Math.floor(random.fraction() * below)
    const seen = new Set<string>()
    for (let step = 0; step < 150; step++) {
      const each = makeFence({
        issuer: step > 0 && pick(12) === 0 ? 'other' : 'i',
        name: 'accounts',
        mode: 'exclusive',
        token: BigInt(1 + Math.floor(step / 4) + pick(5)),
        grant: `g${pick(2)}`,
      })
      const expected = await reference.run(each, () => 'written').catch((error) => error.code)
      const codes = { written: 'written', stale: 'FENCE_STALE', foreign: 'FENCE_FOREIGN' }
      const actual = codes[(await write(formatFence(each))) as keyof typeof codes]
      seen.add(expected)
      assert.equal(actual, expected, `step ${step}: ${formatFence(each)}`)
      if (step % 20 !== 19) continue
      const forgotten = [reference, postgres].map((one) => one.prune({ untouchedForMs: 0 }))
      assert.equal(await forgotten[0], await forgotten[1])
    }
    assert.deepEqual(seen, new Set(['written', 'FENCE_STALE', 'FENCE_FOREIGN']))
  })

  test('what is printed is what is installed, and can be run again', async () => {
    await fenced.remove(pool)
    assert.equal(await write(null), 'written')
    for (let time = 0; time < 2; time++) await pool.query(fenced.installSql)
    assert.equal(await write(null), 'missing')
    await pool.query(fenced.removeSql)
    assert.equal(await write(null), 'written')
  })
})
