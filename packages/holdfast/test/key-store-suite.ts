/** The promises of a store of idempotency keys, step by step, on whatever database it is. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'vitest'
import type { Claimed, KeyStore } from '../src/lockfree/key-store.ts'

export interface KeyStoreWorld {
  readonly store: KeyStore<never>
  /** As if the time of this key's claim had run out. */
  expire(claimed: Claimed): Promise<void>
}

let keys = 0

export function keyStoreCases(world: () => KeyStoreWorld): void {
  const keepMs = 60_000
  const fresh = (attempt = 'one') => ({
    scope: 'steps',
    key: `key ${++keys}`,
    attempt,
    payload: null,
    ttlMs: 60_000,
    keepMs,
  })
  const takeoverOf = async (request: ReturnType<typeof fresh>) => {
    const answer = await world().store.claim(request)
    assert.equal(answer.kind, 'claimed')
    return answer.kind === 'claimed' && answer.isTakeover
  }

  test('a takeover is one for the same attempt that asks again, and for all after it until there is an outcome', async () => {
    const { store, expire } = world()
    const one = fresh()
    const [two, three] = [
      { ...one, attempt: 'two' },
      { ...one, attempt: 'three' },
    ]
    assert.equal(await takeoverOf(one), false)
    await expire(one)
    assert.equal(await takeoverOf(two), true)
    assert.equal(await takeoverOf(two), true, 'its first answer was lost')
    await store.abandon(two, { begun: false, keepMs })
    assert.equal(await takeoverOf(three), true, 'the one before it has not begun, but the first one has')
    const stored = { kind: 'done', body: '1' } as const
    assert.deepEqual(await store.settle(three, { ...stored, keepMs }), stored)
    assert.deepEqual(await store.settle(two, { ...stored, keepMs }), { kind: 'lost' })
    assert.deepEqual(await store.abandon(two, { begun: true, keepMs }), { kind: 'lost' })
    assert.deepEqual(await store.claim(one), { kind: 'done', body: '1' })
  })

  test('a claim that is given back is forgotten if no work was begun under it, and only ended if some was', async () => {
    const { store } = world()
    const one = fresh()
    const two = { ...one, attempt: 'two' }
    assert.equal(await takeoverOf(one), false)
    assert.equal(await takeoverOf(one), false, 'its first answer was lost')
    await store.abandon(one, { begun: false, keepMs })
    assert.equal(await takeoverOf(two), false)
    assert.deepEqual(await store.abandon(two, { begun: true, keepMs }), { kind: 'none' })
    assert.equal(await store.extend(two, 60_000, 60_000), false)
    assert.equal(await takeoverOf(one), true)
    await store.abandon(two, { begun: true, keepMs })
    assert.equal((await store.claim(two)).kind, 'busy', 'it was not its claim any more')
  })

  test('that work was begun is remembered beyond its claim, however often that was prolonged', async () => {
    const { store, expire } = world()
    const one = { ...fresh(), ttlMs: 2_000, keepMs: 1 }
    assert.equal(await takeoverOf(one), false)
    assert.equal(await store.extend(one, 60_000, 60_000), true)
    await sleep(2_100)
    await expire(one)
    await store.prune()
    assert.equal(await takeoverOf({ ...one, attempt: 'two' }), true)
  })

  test('an outcome stays what it is, and who has stored it need not fear for the claim', async () => {
    const { store } = world()
    for (const [kind, other] of [
      ['done', 'failed'],
      ['failed', 'done'],
    ] as const) {
      const one = fresh()
      assert.equal(await takeoverOf(one), false)
      const stored = { kind, body: '1' }
      assert.deepEqual(await store.settle(one, { kind, body: '1', keepMs }), stored)
      assert.deepEqual(
        await store.settle(one, { kind, body: '1', keepMs }),
        stored,
        'its first answer was lost',
      )
      assert.deepEqual(await store.settle(one, { kind: other, body: '2', keepMs }), stored)
      assert.deepEqual(await store.settle(one, { kind, body: '2', keepMs }), stored)
      assert.deepEqual(await store.abandon(one, { begun: true, keepMs }), stored)
      assert.equal(await store.extend(one, 60_000, 60_000), kind === 'done')
      assert.equal(await store.extend({ ...one, attempt: 'two' }, 60_000, 60_000), false)
      assert.deepEqual(await store.claim({ ...one, attempt: 'two' }), { kind, body: '1' })
    }
  })

  test('an outcome is kept for as long as it was stored for: no later step prolongs that', async () => {
    const { store } = world()
    const one = fresh()
    assert.equal(await takeoverOf(one), false)
    await store.settle(one, { kind: 'done', body: '1', keepMs: 1 })
    await store.settle(one, { kind: 'done', body: '1', keepMs })
    await store.abandon(one, { begun: true, keepMs })
    await store.extend(one, 60_000, keepMs)
    await sleep(10)
    assert.equal((await store.claim({ ...one, attempt: 'two' })).kind, 'claimed')
  })
}
