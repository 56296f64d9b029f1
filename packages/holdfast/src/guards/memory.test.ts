import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { makeFence } from '../base/fence.ts'
import { describeGuard, type GuardWorld } from '../testing/describe-guard.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { MemoryResource, type MemoryTx, memoryGuard } from './memory.ts'

function createWorld(): GuardWorld<MemoryTx<string>> {
  const clock = createFakeClock()
  let resource = new MemoryResource<string>()
  return {
    guard: async (options) => memoryGuard({ ...options, resource, clock }),
    read: async (tx, key) => tx.get(key),
    write: async (tx, key, value) => tx.set(key, value),
    stored: async (key) => resource.get(key),
    transaction: (_guard, body) => resource.transaction(body),
    outsideTransaction: () => resource.transaction((tx) => tx),
    passTime: (ms) => clock.advance(ms),
    async reopen() {
      resource = new MemoryResource()
    },
    async close() {},
  }
}

const forgets = 'its memory, like what it protects, ends with the process'

describeGuard({
  name: 'memoryGuard',
  describe,
  test,
  createWorld: async () => createWorld(),
  except: ['D120', 'D121', 'D122', 'D123', 'D124', 'D126'].map((rule) => ({ rule, why: forgets })),
})

describe('memoryGuard', () => {
  const fence = makeFence({ issuer: 'i', name: 'n', mode: 'exclusive', token: 1n, grant: 'g' })

  test('a transaction sees its own writes and deletions, and no other transaction does before it has succeeded', async () => {
    const guard = memoryGuard<number>()
    const { resource } = guard
    await guard.run(fence, (tx) => tx.set('a', 1))
    await guard.run(fence, async (tx) => {
      tx.delete('a')
      tx.set('b', 2)
      assert.deepEqual([tx.get('a'), tx.get('b')], [undefined, 2])
      assert.deepEqual([resource.get('a'), resource.get('b')], [1, undefined])
    })
    assert.deepEqual([resource.get('a'), resource.get('b')], [undefined, 2])
  })

  test('a transaction that is over cannot be used any more', async () => {
    const guard = memoryGuard<number>()
    const leaked = await guard.run(fence, (tx) => tx)
    for (const use of [() => leaked.get('a'), () => leaked.set('a', 1), () => leaked.delete('a')])
      assert.throws(use, { code: 'INVALID_ARGUMENT' })
  })

  test('enter refuses what is not a transaction of its own resource', async () => {
    const [one, other] = [memoryGuard(), memoryGuard()]
    await one.resource.transaction((tx) =>
      assert.rejects(other.enter(tx, fence), { code: 'INVALID_ARGUMENT' }),
    )
    await assert.rejects(one.enter(new Map() as MemoryTx, fence), { code: 'INVALID_ARGUMENT' })
  })

  test('what an effect leaves running in the background is not taken for a part of it', async () => {
    const guard = memoryGuard<number>()
    const gate = Promise.withResolvers<void>()
    const { background } = await guard.run(fence, () => ({
      background: gate.promise.then(() => guard.run(fence, (tx) => tx.set('a', 1))),
    }))
    gate.resolve()
    await background
    assert.equal(guard.resource.get('a'), 1)
  })
})
