import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { SqliteRig, watch } from '../../../../test/sqlite/rig.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import { createLocker } from '../../../locker/locker.ts'
import { Operator } from '../../../testing/conformance/operator.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'

/** Rows as `tryAcquire` would write them, without the time that it takes. */
function hold(rig: SqliteRig, count: number): void {
  rig.sql(
    `WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
     INSERT INTO holders SELECT 'default', printf('item/%06d', n), printf('%022d.%022d', n, n), 1, 0, 'exclusive', 1, 1, 0.0,
       0.0, NULL, NULL, NULL FROM numbers`,
    count,
  )
}

describe('a list in pages', () => {
  test('T82 a list of 50,000 names has all of them', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    await rig.session(client)
    hold(rig, 50_000)
    const locker = createLocker(client, { callTimeoutMs: 60_000 })
    const names = (await locker.list('item/')).map(({ name }) => name)
    assert.equal(new Set(names).size, 50_000)
    assert.deepEqual([names[0], names.at(-1)], ['item/000001', 'item/050000'])
    await locker.close()
  })

  test('T82 a page costs the same statements wherever it is, and each reads its own rows only', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    await rig.session(client)
    hold(rig, 1_000)
    const costs = []
    for (const cursor of [undefined, 'item/000500', 'item/000995']) {
      const before = client.statistics.statements
      const { items, next } = await client.list('', { limit: 10, ...(cursor && { cursor }) }, call())
      costs.push([items.length, client.statistics.statements - before])
      assert.equal(next === null, cursor === 'item/000995')
    }
    assert.deepEqual(costs, [
      [10, 6],
      [10, 6],
      [5, 6],
    ])
  })

  test('names that have expired leave a page short, and end none before the last', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const [dying, living] = [await rig.session(client, 1_000), await rig.session(client, 60_000)]
    for (const name of ['a', 'b', 'c']) await dying.tryAcquire(request(name), call())
    await living.tryAcquire(request('d'), call())
    rig.clock.block(1_000)
    const first = await client.list('', { limit: 2 }, call())
    assert.deepEqual([first.items, first.next], [[], 'b'])
    assert.deepEqual(
      (await listAll(client, '', call())).map(({ name }) => name),
      ['d'],
    )
  })

  test('a cursor before the prefix shows nothing outside of it', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    for (const name of ['a', 'b/1', 'b/2', 'c']) await session.tryAcquire(request(name), call())
    for (const [cursor, expected] of [
      ['a', ['b/1', 'b/2']],
      ['b/1', ['b/2']],
      ['c', []],
    ] as const) {
      const { items, next } = await client.list('b/', { limit: 10, cursor }, call())
      assert.deepEqual([items.map(({ name }) => name), next], [expected, null])
    }
  })
})

describe('sessions', () => {
  test('of this namespace are listed, and only those that live', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const living = await rig.session(client, 60_000)
    await rig.session(client, 1_000)
    await rig.session(rig.open({ namespace: 'apart' }))
    rig.clock.block(1_000)
    const { items, next } = await client.sessions({ limit: 10 }, call())
    assert.deepEqual(items, [{ id: living.id, holder: 'tester', ttlMs: 60_000, expiresInMs: 59_000 }])
    assert.equal(next, null)
  })
})

describe('a limit of waiters', () => {
  test('dead waiters do not count, although no process has removed them', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const [holder, dying, living] = [
      await rig.session(client, 60_000),
      await rig.session(client, 1_000),
      await rig.session(client, 60_000),
    ]
    await holder.tryAcquire(request('x'), call())
    watch(enqueued(dying, request('x'), call()))
    await rig.until('it is queued', () => rig.rows().waiters === 1)
    const limited = () => request('x', { maxWaiters: 1 })
    assert.deepEqual(await enqueued(living, limited(), call()), { kind: 'queue-full' })
    rig.clock.block(1_000)
    const queued = watch(enqueued(living, limited(), call()))
    await rig.clock.settle()
    assert.deepEqual([queued.state, rig.rows().waiters, rig.rows().marks], ['pending', 1, 0])
  })
})

test('an owner stays with its claim when the turn comes, and the reason of a force release with its mark', async () => {
  await using rig = new SqliteRig()
  const client = rig.open()
  const session = await rig.session(client)
  const [held, next] = [request('x', { owner: 'first' }), request('x', { owner: 'second' })]
  await session.tryAcquire(held, call())
  const turn = watch(enqueued(session, next, call()))
  await rig.clock.settle()
  await new Operator(client).force('x')
  await rig.until('the turn has come', () => turn.state === 'fulfilled')
  const [state] = await listAll(client, 'x', call())
  assert.deepEqual(
    state?.holders.map(({ owner, session, ttlMs }) => [owner, session, ttlMs]),
    [['second', session.id, 10_000]],
  )
  const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
  assert(kept.kind === 'alive')
  assert.deepEqual(kept.lost, [
    { attempt: held.attempt, reason: 'force-released', detail: 'an operator said so' },
  ])
})
