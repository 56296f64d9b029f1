import assert from 'node:assert/strict'
import { reach, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { fence } from '../../../test/guard-table.ts'
import { libraries } from '../../../test/postgres/clients.ts'
import { makeFence } from '../../base/fence.ts'
import { type SqlTransaction, sqlRunnerOf } from '../../clients/postgres/index.ts'
import { applyFenced, fencedRead, fencedUpdate, fencedUpsert } from '../postgres.ts'

describe.runIf(wanted('postgres')).each(libraries)('one-statement forms with $name', (library) => {
  let server: Awaited<ReturnType<typeof reach>>
  let opened: ReturnType<typeof library.open>
  let tx: SqlTransaction
  const table = 'one_statement'
  beforeAll(async () => {
    server = await reach('postgres')
    opened = library.open(server.url)
    tx = opened.client as unknown as SqlTransaction
    await sqlRunnerOf(tx).query(`DROP TABLE IF EXISTS ${table}`)
    await sqlRunnerOf(tx).query(
      `CREATE TABLE ${table} (id int PRIMARY KEY, "Balance" int NOT NULL, owner_token bigint, "a, b" int DEFAULT 7)`,
    )
  }, 60_000)
  afterAll(async () => {
    await opened[Symbol.asyncDispose]()
    await server.stop()
  })

  const update = (token: bigint, value: number, id: number, once?: boolean) =>
    applyFenced(
      tx,
      fencedUpdate(fence(token), {
        table,
        key: { id },
        set: { Balance: value },
        returning: ['Balance'],
        ...(once !== undefined && { once }),
      }),
    )

  test('the statement is one that people would write themselves', () => {
    const { text, values } = fencedUpdate(fence(5n), {
      table: 'public.accounts',
      key: { id: 7 },
      set: { balance: 90 },
    })
    assert.equal(
      text,
      'UPDATE "public"."accounts" SET "balance" = $3, "owner_token" = $1::bigint ' +
        'WHERE "id" = $2 AND coalesce("owner_token", 0) <= $1::bigint RETURNING "owner_token"',
    )
    assert.deepEqual(values, ['5', 7, 90])
    const upsert = fencedUpsert(fence(5n), {
      table: 'accounts',
      key: { id: 7 },
      set: { balance: 90 },
      once: true,
    })
    assert.equal(
      upsert.text,
      'INSERT INTO "accounts" AS t ("owner_token", "id", "balance") VALUES ($1::bigint, $2, $3) ' +
        'ON CONFLICT ("id") DO UPDATE SET "owner_token" = excluded."owner_token", "balance" = excluded."balance" ' +
        'WHERE coalesce(t."owner_token", 0) < excluded."owner_token" RETURNING t."owner_token"',
    )
  })

  test('G5 an update with <=: the same holder as often as it likes, an older one never', async () => {
    await sqlRunnerOf(tx).query(`INSERT INTO ${table} VALUES (1, 0, NULL)`)
    assert.deepEqual([...((await update(5n, 10, 1)) ?? [])], [10])
    assert.deepEqual([...((await update(5n, 20, 1)) ?? [])], [20])
    await assert.rejects(update(4n, 99, 1), { code: 'FENCE_STALE', highest: 5n })
    assert.deepEqual([...((await update(6n, 30, 1)) ?? [])], [30])
    assert.equal(await update(7n, 1, 404), null, 'no such row')
  })

  test('once, with <: a token is good for one write, and a repetition changes nothing', async () => {
    await sqlRunnerOf(tx).query(`INSERT INTO ${table} VALUES (2, 0, 0)`)
    assert.deepEqual([...((await update(5n, 10, 2, true)) ?? [])], [10])
    await assert.rejects(update(5n, 99, 2, true), { code: 'FENCE_STALE', message: /may be used once only/ })
    await assert.rejects(update(4n, 99, 2, true), { code: 'FENCE_STALE', message: /a newer holder/ })
    assert.deepEqual([...((await update(6n, 20, 2, true)) ?? [])], [20])
  })

  test('G5 the fenced upsert: the first writes the row, and of many at once the newest stays', async () => {
    const tokens = [3n, 1n, 4n, 1n, 5n, 9n, 2n, 6n]
    const outcomes = await Promise.allSettled(
      tokens.map((token) =>
        applyFenced(
          tx,
          fencedUpsert(fence(token), { table, key: { id: 3 }, set: { Balance: Number(token) } }),
        ),
      ),
    )
    for (const each of outcomes) if (each.status === 'rejected') assert.equal(each.reason.code, 'FENCE_STALE')
    const rows = await sqlRunnerOf(tx).query(`SELECT "Balance", owner_token::text FROM ${table} WHERE id = 3`)
    assert.deepEqual([...(rows[0] ?? [])], [9, '9'])
  })

  test('the columns that it answers with may have any name', async () => {
    const row = { table, key: { id: 6 }, returning: ['a, b', 'id', 'Balance'] }
    const upsert = fencedUpsert(fence(5n), { ...row, set: { Balance: 1 } })
    assert.match(upsert.text, / RETURNING t\."a, b", t\."id", t\."Balance"$/)
    assert.deepEqual([...((await applyFenced(tx, upsert)) ?? [])], [7, 6, 1])
    const update = fencedUpdate(fence(5n), { ...row, set: { 'a, b': 8 } })
    assert.deepEqual([...((await applyFenced(tx, update)) ?? [])], [8, 6, 1])
  })

  test('G11 a value that the table refuses is the caller’s mistake, and not worth a retry', async () => {
    await sqlRunnerOf(tx).query(`INSERT INTO ${table} VALUES (8, 0, NULL)`)
    for (const Balance of [null, 'ten', 2 ** 40]) {
      const refused = applyFenced(tx, fencedUpdate(fence(5n), { table, key: { id: 8 }, set: { Balance } }))
      await assert.rejects(refused, { code: 'INVALID_ARGUMENT', argument: 'statement', retryable: false })
    }
  })

  test('T40 a read that leaves its token shuts out the older holder’s write; one that does not, loses it', async () => {
    await sqlRunnerOf(tx).query(`INSERT INTO ${table} VALUES (4, 100, 1)`)
    const read = fencedRead(fence(6n), { table, key: { id: 4 }, returning: ['Balance'] })
    assert.deepEqual([...((await applyFenced(tx, read)) ?? [])], [100])
    await assert.rejects(update(5n, 0, 4), { code: 'FENCE_STALE' })
  })

  test('T42 the largest token is compared exactly', async () => {
    await sqlRunnerOf(tx).query(`INSERT INTO ${table} VALUES (5, 0, NULL)`)
    await update(2n ** 63n - 1n, 1, 5)
    await assert.rejects(update(2n ** 63n - 2n, 2, 5), { code: 'FENCE_STALE', highest: 2n ** 63n - 1n })
  })

  test('what makes no sense is refused before anything is sent', () => {
    const row = { table, key: { id: 1 }, set: { Balance: 1 } }
    const shared = makeFence({ ...fence(5n), mode: 'shared' })
    for (const call of [
      () => fencedUpdate(shared, row),
      () => fencedUpdate([fence(5n)] as never, row),
      () => fencedUpdate(fence(5n), { ...row, key: {} }),
      () => fencedUpdate(fence(5n), { ...row, set: { owner_token: 1 } }),
      () => fencedUpdate(fence(5n), { ...row, table: 'a.b.c' }),
      () => fencedUpdate(fence(5n), { ...row, onec: true } as never),
      () => fencedUpdate(fence(5n), { ...row, once: 1 } as never),
      () => fencedUpdate(fence(5n), undefined as never),
    ])
      assert.throws(call, { code: 'INVALID_ARGUMENT' })
    assert.throws(() => fencedUpdate(5n as never, row), { code: 'FENCE_INVALID' })
  })
})
