import { AsyncLocalStorage } from 'node:async_hooks'
import { expect, test } from 'vitest'
import { isHoldfastError } from '../../src/base/errors.ts'
import type { AcquireOptions, FencedLease, Locker } from '../../src/base/types.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { memoryGuard } from '../../src/guards/memory.ts'
import { createLocker } from '../../src/locker/locker.ts'
import { reentrant } from '../../src/recipes/reentrant.ts'
import type { CallKind } from '../../src/testing/faults.ts'
import type { FaultyBackend } from '../../src/testing/faulty-backend.ts'
import { describeRecipe, type RecipeWorld } from './worlds.ts'

const name = 'invoices/2026-11'

/** As in another process. */
async function isFree(stranger: Locker<'fenced'>): Promise<boolean> {
  const lease = await stranger.tryAcquire(name)
  await lease?.release()
  return lease !== null
}

async function two(world: RecipeWorld) {
  const plain = await world.locker()
  return {
    plain,
    locker: reentrant(plain),
    stranger: await world.locker(),
    asked: () => requestsOf(world.wireOf(plain)),
  }
}

/** Requests that the engine got, but for renewals, which come when they are due. */
function requestsOf(wire: FaultyBackend<'fenced'>): readonly CallKind[] {
  return wire.log.map(({ kind }) => kind).filter((kind) => kind !== 'keepAlive')
}

/** A promise that is settled from outside. */
function gate() {
  const { promise, resolve } = Promise.withResolvers<void>()
  return { passed: promise, open: () => resolve() }
}

describeRecipe('re-entrancy', (stage) => {
  stage.test('T39 re-entry keeps the token, and the engine is not asked', async (world) => {
    const { locker, stranger, asked } = await two(world)
    const tokens = await locker.withLease(name, async (outer) => {
      const before = asked()
      const inner = await locker.acquire(name)
      const tried = await locker.tryAcquire(name)
      const nested = await locker.withLease(name, async ({ fence }) => fence)
      expect(asked()).toEqual(before)
      expect([inner.id, tried?.id]).toEqual([outer.id, outer.id])
      expect([inner.fence, tried?.fence, nested]).toEqual([outer.fence, outer.fence, outer.fence])
      await inner.release()
      await tried?.release()
      expect(asked()).not.toContain('release')
      expect(outer.state).toBe('held')
      expect(await isFree(stranger)).toBe(false)
      return [outer.fence.token, inner.fence.token]
    })
    expect(tokens[0]).toBe(tokens[1])
    expect(asked().filter((kind) => kind === 'release')).toHaveLength(1)
    expect(await isFree(stranger)).toBe(true)
  })

  stage.test('it is released when the count reaches zero, whichever lease is the last', async (world) => {
    const { locker, stranger, asked } = await two(world)
    let kept: FencedLease | undefined
    await locker.withLease(name, async () => {
      kept = await locker.acquire(name)
    })
    // The task outlives the body, and its lease keeps the claim.
    expect(kept?.state).toBe('held')
    expect(asked()).not.toContain('release')
    expect(await isFree(stranger)).toBe(false)
    expect(await kept?.release()).toBe('released')
    expect(kept?.state).toBe('released')
    expect(await isFree(stranger)).toBe(true)
    // A second release touches no successor (G7).
    const successor = await stranger.acquire(name)
    await kept?.release()
    expect(await locker.check(successor.fence)).toBe(true)
  })

  stage.test('a scope that is over is not entered again', async (world) => {
    const { locker, stranger } = await two(world)
    const { passed, open } = gate()
    let late: Promise<FencedLease | null> | undefined
    await locker.withLease(name, async () => {
      late = passed.then(() => locker.tryAcquire(name))
    })
    const successor = await stranger.acquire(name)
    open()
    expect(await late).toBeNull()
    expect(await locker.check(successor.fence)).toBe(true)
  })

  stage.test('G1 two unrelated tasks of one process exclude each other', async (world) => {
    const { locker } = await two(world)
    let inside = 0
    let most = 0
    const task = () =>
      locker.withLease(name, async () => {
        inside++
        most = Math.max(most, inside)
        await locker.withLease(name, async () => {
          expect(inside).toBe(1)
        })
        inside--
      })
    await Promise.all([task(), task(), task()])
    expect(most).toBe(1)
    // Code in a context from outside of the body is another task, also while the body waits for it.
    const outside = AsyncLocalStorage.snapshot()
    await locker.withLease(name, async () => {
      expect(await outside(() => locker.tryAcquire(name))).toBeNull()
    })
    const holder = await locker.acquire(name)
    // `acquire` opens no scope.
    expect(await locker.tryAcquire(name)).toBeNull()
    await holder.release()
  })

  stage.test('tasks that are started in the scope share it', async (world) => {
    const { locker, asked } = await two(world)
    await locker.withLease(name, async (outer) => {
      const before = asked()
      const tokens = await Promise.all(
        [1, 2, 3].map(() => locker.withLease(name, async (lease) => lease.fence.token)),
      )
      expect(tokens).toEqual([outer.fence.token, outer.fence.token, outer.fence.token])
      expect(asked()).toEqual(before)
      expect(outer.state).toBe('held')
    })
  })

  stage.test('the loss of the outer lease loses all, and nothing is entered any more', async (world) => {
    const { locker, stranger } = await two(world)
    const outcome = locker.withLease(name, async (outer) => {
      const inner = await locker.acquire(name)
      const heard = new Promise((resolve) => inner.signal.addEventListener('abort', resolve))
      const nested = locker.withLease(name, async () => {
        await stranger.forceRelease(name, { all: true, reason: 'a test' })
        await world.until('the loss', () => outer.state === 'lost')
        return 'done'
      })
      await expect(nested).rejects.toMatchObject({
        code: 'LEASE_LOST',
        body: { status: 'fulfilled', value: 'done' },
      })
      await heard
      expect(inner.state).toBe('lost')
      expect(inner.remainingMs).toBe(0)
      await expect(inner.ensure(1)).rejects.toMatchObject({ code: 'LEASE_LOST' })
      const successor = await stranger.acquire(name)
      for (const again of [
        () => locker.acquire(name),
        () => locker.tryAcquire(name),
        () => locker.withLease(name, () => {}),
        () => locker.acquireAll([name, 'other']),
      ])
        await expect(again()).rejects.toMatchObject({ code: 'LEASE_LOST' })
      expect(await inner.release()).toBe('not-held')
      expect(await stranger.check(successor.fence)).toBe(true)
      return 'outer'
    })
    await expect(outcome).rejects.toMatchObject({ code: 'LEASE_LOST', body: { value: 'outer' } })
    expect((await stranger.list()).map((state) => state.name)).toEqual([name])
  })

  stage.test('a lease that was released is over, also while others hold the claim', async (world) => {
    const { locker } = await two(world)
    await locker.withLease(name, async (outer) => {
      const inner = await locker.acquire(name)
      expect(await inner.release()).toBe('released')
      expect(await inner.release()).toBe('released')
      expect([inner.state, inner.remainingMs, inner.signal.aborted]).toEqual(['released', 0, false])
      for (const act of [() => inner.renew(), () => inner.ensure(1), () => inner.setData('x')])
        await expect(act()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'released' })
      await expect(memoryGuard().run(inner, () => {})).rejects.toMatchObject({ code: 'LEASE_LOST' })
      await memoryGuard().run(outer, () => {})
      // A release of the outer lease in its own body counts as any other.
      await outer.release()
      expect(await locker.inspect(name)).toBeNull()
      await locker.withLease(name, async (again) => {
        expect(again.fence.token).toBeGreaterThan(outer.fence.token)
      })
    })
  })

  stage.test('acquireAll enters what the task has, and asks for the rest: all or nothing', async (world) => {
    const { locker, stranger } = await two(world)
    await locker.withLease(name, async (outer) => {
      const set = await locker.acquireAll(['zebra', name, 'apple'])
      expect(set.leases.map((lease) => lease.name)).toEqual(['apple', name, 'zebra'])
      expect(set.get(name).fence).toEqual(outer.fence)
      await set.release()
      expect(outer.state).toBe('held')
      const theirs = await stranger.acquire('zebra')
      await expect(locker.acquireAll(['zebra', name], { waitMs: 0 })).rejects.toMatchObject({
        code: 'ACQUIRE_TIMEOUT',
      })
      await theirs.release()
      expect((await stranger.list()).map((state) => state.name)).toEqual([name])
      // Nothing of the failed call counts: this is the last release.
      await outer.release()
      expect(await isFree(stranger)).toBe(true)
    })
  })

  stage.test('a reader re-enters past a writer that waits, and no mode is changed', async (world) => {
    const { locker, stranger } = await two(world)
    const writer = await locker.withLease(name, { mode: 'shared' }, async (outer) => {
      const waiting = stranger.acquire(name, { waitMs: Number.POSITIVE_INFINITY })
      await world.until('the writer waits', async () => (await locker.inspect(name))?.waiters.length === 1)
      const inner = await locker.acquire(name, { mode: 'shared', waitMs: 0 })
      expect(inner.fence).toEqual(outer.fence)
      await inner.release()
      await expect(locker.acquire(name)).rejects.toMatchObject({ argument: 'mode' })
      return { waiting }
    })
    await (await writer.waiting).release()
    await locker.withLease(name, async () => {
      await expect(locker.tryAcquire(name, { mode: 'shared' })).rejects.toMatchObject({ argument: 'mode' })
    })
  })

  stage.test('T53 closing waits for the leases inside', async (world) => {
    const { locker, plain } = await two(world)
    const { passed, open } = gate()
    const ended: string[] = []
    const running = locker.withLease(name, async (outer) => {
      await locker.withLease(name, async (inner) => {
        open()
        await new Promise((resolve) => inner.signal.addEventListener('abort', resolve))
        ended.push('inner')
      })
      expect(outer.state).toBe('lost')
    })
    await passed
    const closing = plain.close().then(() => ended.push('closed'))
    await expect(running).rejects.toMatchObject({ code: 'LEASE_LOST' })
    await closing
    expect(ended).toEqual(['inner', 'closed'])
  })
})

test('acquireAll fails if what it has entered is lost while it waits for the rest', async () => {
  await using plain = createLocker(memory())
  const locker = reentrant(plain)
  const other = await plain.acquire('other')
  const body = locker.withLease(name, async (lease) => {
    const asked = locker.acquireAll([name, 'other'])
    asked.catch(() => {})
    await plain.forceRelease(name, { all: true, reason: 'a test' })
    await lease.renew().catch(() => {})
    expect(lease.state).toBe('lost')
    await other.release()
    await expect(asked).rejects.toMatchObject({ code: 'LEASE_LOST', resource: name })
    expect((await plain.inspect('other'))?.holders ?? []).toEqual([])
    return 'checked'
  })
  // A failure of the body would be hidden behind the loss.
  await expect(body).rejects.toMatchObject({ code: 'LEASE_LOST', body: { value: 'checked' } })
})

test('what the grant cannot give on re-entry is refused', async () => {
  await using plain = createLocker(memory(), { ttlMs: 5_000 })
  const locker = reentrant(plain)
  await locker.withLease(name, async (outer) => {
    const refused: [AcquireOptions, string][] = [
      [{ ttlMs: 5_001 }, 'ttlMs'],
      [{ maxHoldMs: 1_000 }, 'maxHoldMs'],
      [{ holdAtLeastMs: 1_000 }, 'holdAtLeastMs'],
      [{ lockDelayMs: 1_000 }, 'lockDelayMs'],
      [{ onJeopardy: () => {} }, 'onJeopardy'],
      [{ mode: 'bogus' as 'shared' }, 'mode'],
      [{ tllMs: 5 } as AcquireOptions, 'options'],
      [{ ttlMs: Number.NaN }, 'ttlMs'],
      [{ signal: {} as AbortSignal }, 'signal'],
      [null as unknown as AcquireOptions, 'options'],
    ]
    for (const [options, argument] of refused) {
      const refusal = { code: 'INVALID_ARGUMENT', argument }
      await expect(locker.acquire(name, options)).rejects.toMatchObject(refusal)
      await expect(locker.tryAcquire(name, options)).rejects.toMatchObject(refusal)
      await expect(locker.withLease(name, options, () => {})).rejects.toMatchObject(refusal)
      await expect(locker.acquireAll([name], options)).rejects.toMatchObject(refusal)
    }
    await expect(locker.tryAcquire(name, { waitMs: 1 } as object)).rejects.toThrow(/no option "waitMs"/)
    const reason = new Error('the caller is gone')
    await expect(locker.acquire(name, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason)
    const lease = await locker.acquire(name, { ttlMs: 1_000, waitMs: 0, maxWaiters: 0, note: 'again' })
    await expect(lease.release({ signal: 5 as unknown as AbortSignal })).rejects.toThrow(/signal/)
    await lease.release()
    // None of them is counted.
    await outer.release()
    expect(await plain.inspect(name)).toBeNull()
  })
})

test('calls that are wrong are refused as by the locker itself', async () => {
  await using plain = createLocker(memory())
  const locker = reentrant(plain)
  await expect(locker.withLease(name, {}, undefined as never)).rejects.toThrow(/body must be a function/)
  await expect(locker.withLease('', () => {})).rejects.toThrow(/name must not be empty/)
  await expect(locker.acquire('a//b')).rejects.toThrow(/empty segments/)
  await expect(locker.acquireAll([name, name])).rejects.toThrow(/twice/)
  await expect(locker.withLease(name, null as never, () => {})).rejects.toThrow(/options/)
  expect(() => reentrant({} as never)).toThrow(/locker must be a locker/)
  const thrown = new Error('of the body')
  await expect(
    locker.withLease(name, () => locker.withLease(name, () => Promise.reject(thrown))),
  ).rejects.toBe(thrown)
  expect(await plain.list()).toEqual([])
})

test('a locker is wrapped once, and the rest of it is as before', async () => {
  await using plain = createLocker(memory())
  const locker = reentrant(plain)
  expect(reentrant(plain)).toBe(locker)
  expect(reentrant(locker)).toBe(locker)
  expect([locker.holder, locker.clock, locker.info]).toEqual([plain.holder, plain.clock, plain.info])
  await using permit = await locker.acquirePermits('pool', { capacity: 2 })
  expect((await locker.list()).map((state) => state.name)).toEqual(['pool'])
  expect(permit.weight).toBe(1)
})

test('the body of withLeases enters its names, also those that it has entered itself', async () => {
  await using plain = createLocker(memory())
  const locker = reentrant(plain)
  const atOnce = { waitMs: 0 }
  await locker.withLease('a', async (outer) => {
    let kept: FencedLease | undefined
    const value = await locker.withLeases(['b', 'a'], async (set) => {
      expect(set.get('a').fence).toEqual(outer.fence)
      kept = await locker.acquire('b', atOnce)
      expect(kept.fence).toEqual(set.get('b').fence)
      await locker.withLease('a', atOnce, ({ fence }) => expect(fence).toEqual(outer.fence))
      await locker.withLeases(['c'], () => locker.withLease('a', atOnce, () => {}))
      await locker.withLeases(['a', 'b'], atOnce, (again) => expect(again.fences).toEqual(set.fences))
      return 'done'
    })
    expect(value).toBe('done')
    expect(outer.state).toBe('held')
    // A task has outlived the body.
    expect(await plain.tryAcquire('b')).toBeNull()
    await kept?.release()
    await using free = await plain.tryAcquire('b')
    expect(free?.state).toBe('held')
  })
  expect((await plain.list()).flatMap(({ holders }) => holders)).toEqual([])
})

test('options that are undefined are none, and nothing stays held', async () => {
  await using plain = createLocker(memory())
  const locker = reentrant(plain)
  const none = undefined as never
  expect(await locker.withLeases(['a', 'b'], none, () => 'done')).toBe('done')
  expect(await locker.withLease('a', none, () => locker.withLease('a', none, () => 'done'))).toBe('done')
  expect((await plain.list()).flatMap(({ holders }) => holders)).toEqual([])
})

test('while the locker drains, what the task holds is entered, and other names are refused', async () => {
  const plain = createLocker(memory())
  const locker = reentrant(plain)
  await locker.withLease(name, async (outer) => {
    void plain.close({ drainMs: 60_000 })
    expect(await locker.withLease(name, ({ fence }) => fence)).toEqual(outer.fence)
    await expect(locker.acquireAll([name, 'other'])).rejects.toMatchObject({ code: 'CLOSED' })
  })
  await plain.close({ drainMs: 60_000 })
})

test('T53 closing waits for a task that has outlived the body of withLeases', async () => {
  const plain = createLocker(memory())
  const locker = reentrant(plain)
  const kept = await locker.withLeases(['a', 'b'], () => locker.acquire('b'))
  const ended: string[] = []
  const closing = plain.close().then(() => ended.push('closed'))
  await new Promise(setImmediate)
  expect(kept.state).toBe('lost')
  ended.push('task')
  await kept.release()
  await closing
  expect(ended).toEqual(['task', 'closed'])
})

test('a name of an inner scope is entered from further inside, and others are not', async () => {
  await using plain = createLocker(memory())
  const locker = reentrant(plain)
  await locker.withLease('a', async (a) => {
    await locker.withLease('b', async () => {
      await using again = await locker.acquire('a')
      expect(again.fence).toEqual(a.fence)
    })
    const b = await locker.acquire('b')
    const error = await locker.acquire('b', { waitMs: 0 }).catch((reason: unknown) => reason)
    expect(isHoldfastError(error, 'ACQUIRE_TIMEOUT')).toBe(true)
    await b.release()
  })
})
