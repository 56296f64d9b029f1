/** The promises of `idempotent`, on whatever database the keys are. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'vitest'
import { memoryGuard } from '../src/guards/memory.ts'
import type { Idempotent } from '../src/lockfree/index.ts'
import { startProgram } from './postgres/program.ts'

export interface IdempotentWorld<Tx> {
  /** Several, each with connections of its own. */
  readonly clients: readonly Idempotent<Tx>[]
  /** As if the time of this key's claim, or of its outcome, had run out. */
  expire(scope: string, key: string, what: 'claim' | 'outcome'): Promise<void>
  /** Runs `body` in a transaction of the user's. */
  transaction<T>(body: (tx: Tx) => Promise<T>): Promise<T>
  /** Breaks a deferred constraint, so that the COMMIT of this transaction fails. */
  spoil(tx: Tx): Promise<void>
  /** Code that makes `idempotent`, for a process of its own; `load` imports a file of the package. */
  readonly program: string
}

let keys = 0

export function idempotentCases<Tx>(world: () => IdempotentWorld<Tx>): void {
  const fresh = () => ({ scope: 'payments', key: `key ${++keys} of ${process.pid}` })
  const first = () => world().clients[0] as Idempotent<Tx>

  test('the first caller does the work, and later ones get what it returned, as JSON brings it back', async () => {
    const request = fresh()
    const result = { amount: 10, at: new Date(0), nothing: undefined }
    const stored = { amount: 10, at: '1970-01-01T00:00:00.000Z' }
    assert.deepEqual(await first()(request, () => result as object), stored)
    for (const client of world().clients)
      assert.deepEqual(await client(request, () => assert.fail('done already')), stored)
    const values = [undefined, null, 0, '', 'U+0000: \0']
    for (const [at, value] of values.entries()) {
      const other = { ...request, key: `${request.key}, value ${at}` }
      assert.equal(await first()(other, () => value), value)
      assert.equal(await first()(other, () => 'again' as never), value)
    }
  })

  test('of forty callers at once, through several clients, one does the work', async () => {
    const request = fresh()
    let works = 0
    const calls = Array.from({ length: 40 }, (_, at) => {
      const client = world().clients[at % world().clients.length] as Idempotent<Tx>
      return client(request, async () => {
        works++
        await sleep(20)
        return `receipt ${works}`
      })
    })
    assert.deepEqual(new Set(await Promise.all(calls)), new Set(['receipt 1']))
    assert.equal(works, 1)
  })

  test('keys of another scope, and other keys, have nothing to do with it', async () => {
    const request = fresh()
    assert.equal(await first()(request, () => 'one'), 'one')
    assert.equal(await first()({ ...request, scope: 'refunds' }, () => 'two'), 'two')
    assert.equal(await first()({ ...request, key: `${request.key} ` }, () => 'three'), 'three')
  })

  test('another payload with the same key is refused, while the work goes on and after it', async () => {
    const request = { ...fresh(), payload: { amount: 10, to: { name: 'Ada' } } }
    const gate = Promise.withResolvers<void>()
    const begun = Promise.withResolvers<void>()
    const working = first()(request, async () => {
      begun.resolve()
      await gate.promise
      return 'paid'
    })
    await begun.promise
    const others = [{ amount: 11, to: { name: 'Ada' } }, undefined, null, [], new Uint8Array([1])]
    const refused = async () => {
      for (const payload of others) {
        const call = first()(
          { scope: request.scope, key: request.key, ...(payload !== undefined && { payload }) },
          () => assert.fail('another request'),
        )
        await assert.rejects(call, { code: 'KEY_REUSED', key: request.key, retryable: false })
      }
    }
    await refused()
    gate.resolve()
    assert.equal(await working, 'paid')
    await refused()
    const reordered = { ...request, payload: { to: { name: 'Ada' }, amount: 10 } }
    assert.equal(await first()(reordered, () => assert.fail('the same request')), 'paid')
  })

  test('another payload is refused also after the work threw or its claim has ended, as long as the key is remembered', async () => {
    for (const ending of ['thrown', 'expired']) {
      const request = { ...fresh(), payload: 1 }
      const gate = Promise.withResolvers<void>()
      const begun = Promise.withResolvers<void>()
      const call = first()(request, async () => {
        begun.resolve()
        await gate.promise
        throw new Error('planted')
      })
      const ended = assert.rejects(call, /planted/)
      await begun.promise
      if (ending === 'expired') await world().expire(request.scope, request.key, 'claim')
      else {
        gate.resolve()
        await ended
      }
      const other = first()({ ...request, payload: 2 }, () => assert.fail('another request'))
      await assert.rejects(other, { code: 'KEY_REUSED' }, ending)
      assert.equal(await first()(request, ({ isTakeover }) => isTakeover), true)
      gate.resolve()
      await ended
    }
  })

  test('an error is not stored by default: the next caller does the work, at once', async () => {
    const request = fresh()
    const planted = new Error('planted')
    await assert.rejects(
      first()(request, () => Promise.reject(planted)),
      planted,
    )
    const seen: boolean[] = []
    for (const failing of [true, false]) {
      const call = first()(request, ({ isTakeover }) => {
        seen.push(isTakeover)
        if (failing) throw planted
        return 'done'
      })
      await (failing ? assert.rejects(call, planted) : call)
    }
    assert.deepEqual(seen, [true, true], 'the work may have done a part of it, and the next caller must look')
    assert.equal(await first()(request, () => assert.fail('done already')), 'done')
  })

  test('work that throws after its result is committed has been done: the result stays, also if the error is to be stored', async () => {
    for (const storeError of [undefined, () => 'failed']) {
      const request = fresh()
      const planted = new Error('the mail server is down')
      const call = first()(
        request,
        async ({ store }) => {
          await world().transaction((tx) => store(tx, 'paid'))
          throw planted
        },
        storeError === undefined ? {} : { storeError },
      )
      await assert.rejects(call, planted)
      assert.equal(await first()(request, () => assert.fail('done already')), 'paid')
    }
  })

  test('a promise is awaited before it is stored, or refused', async () => {
    const request = fresh()
    const storeError = async () => undefined
    await assert.rejects(
      first()(request, () => Promise.reject(new Error('reset')), { storeError }),
      /reset/,
    )
    assert.equal(await first()(request, () => 'done after all'), 'done after all')
    const storing = first()(fresh(), ({ store }) =>
      world().transaction((tx) => store(tx, Promise.resolve('paid'))),
    )
    await assert.rejects(storing, { code: 'INVALID_ARGUMENT', message: /an `await` is missing/ })
  })

  const broken: readonly (readonly [string, (error: unknown) => unknown, RegExp])[] = [
    ['throws', () => Promise.reject(new Error('no such code')), /no such code/],
    ['answers what JSON cannot express', () => ({ amount: 10n }), /JSON can express/],
    ['answers more than can be stored', () => 'x'.repeat(2 ** 21), /must have at most/],
  ]
  for (const [what, storeError, why] of broken)
    test(`T104 a storeError that ${what} is told, and the work is not done twice`, async () => {
      const request = fresh()
      const planted = new Error('card declined')
      let works = 0
      const call = (options: object) =>
        first()(
          request,
          () => {
            works++
            throw planted
          },
          options,
        )
      const told = await call({ storeError }).catch((error) => error)
      assert.equal(told.code, 'INVALID_ARGUMENT')
      assert.equal(told.argument, 'storeError')
      assert.match(told.message, why)
      assert.equal(told.cause.errors[1], planted)
      // At once, and not when the time of the claim is over.
      await assert.rejects(call({ storeError, waitMs: 0 }), {
        code: 'STORED_FAILURE',
        failure: { message: 'card declined' },
      })
      assert.equal(works, 1)
    })

  test('T104 a storeError that throws for an error without a text of its own: the work is not done twice either', async () => {
    const messages: readonly PropertyDescriptor[] = [
      { value: { code: 42 } },
      { value: undefined },
      { value: Object.create(null) },
      { get: () => assert.fail('no message') },
    ]
    for (const message of messages) {
      const request = fresh()
      const planted = Object.defineProperty(new Error(), 'message', message)
      const storeError = () => assert.fail('no such code')
      const failing = first()(request, () => Promise.reject(planted), { storeError })
      await assert.rejects(failing, { code: 'INVALID_ARGUMENT', argument: 'storeError' })
      await assert.rejects(
        first()(request, () => assert.fail('done already'), { waitMs: 0 }),
        { code: 'STORED_FAILURE' },
      )
    }
  })

  test('an error that is to be stored comes out as it is once, and as STORED_FAILURE from then on', async () => {
    const request = fresh()
    const planted = Object.assign(new Error('card declined'), { reason: 'declined' })
    const options = {
      storeError: (error: unknown) =>
        error === planted ? { reason: (error as typeof planted).reason } : undefined,
    }
    await assert.rejects(
      first()(request, () => Promise.reject(planted), options),
      planted,
    )
    await assert.rejects(
      first()(request, () => assert.fail('failed already')),
      { code: 'STORED_FAILURE', failure: { reason: 'declined' } },
    )
    const other = fresh()
    await assert.rejects(
      first()(other, () => Promise.reject(new Error('reset')), options),
      /reset/,
    )
    assert.equal(await first()(other, () => 'second try', options), 'second try')
  })

  test('an outcome expires, and then the key is a new one, also with another payload', async () => {
    const request = fresh()
    await first()({ ...request, payload: 1 }, () => 'old')
    await world().expire(request.scope, request.key, 'outcome')
    const renewed = await first()({ ...request, payload: 2 }, ({ isTakeover }) => `new ${isTakeover}`)
    assert.equal(renewed, 'new false')
  })

  test('what has expired is removed by prune, and nothing else', async () => {
    const [old, kept] = [fresh(), fresh()]
    await first()(old, () => 'old')
    await first()(kept, () => 'kept')
    while ((await first().prune()) > 0);
    await world().expire(old.scope, old.key, 'outcome')
    assert.equal(await first().prune(), 1)
    assert.equal(await first()(kept, () => 'again'), 'kept')
  })

  test('G11 a caller that does not want to wait, or not that long, is told that another is at it', async () => {
    const request = fresh()
    const gate = Promise.withResolvers<void>()
    const begun = Promise.withResolvers<void>()
    const working = first()(request, async () => {
      begun.resolve()
      await gate.promise
    })
    await begun.promise
    for (const waitMs of [0, 30])
      await assert.rejects(
        first()(request, () => assert.fail('another caller is at it'), { waitMs }),
        { code: 'ACQUIRE_TIMEOUT', isBlocked: false, message: /Another caller is still at this work/ },
      )
    const reason = new Error('cancelled')
    const controller = new AbortController()
    const waiting = first()(request, () => assert.fail('another caller is at it'), {
      signal: controller.signal,
    })
    controller.abort(reason)
    await assert.rejects(waiting, reason)
    gate.resolve()
    await working
  })

  test('the signal of the caller is part of the signal of the work', async () => {
    const controller = new AbortController()
    const reason = new Error('no longer needed')
    const call = first()(
      fresh(),
      async ({ signal }) => {
        assert.equal(signal.aborted, false)
        const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve))
        controller.abort(reason)
        await aborted
        throw signal.reason
      },
      { signal: controller.signal },
    )
    await assert.rejects(call, reason)
  })

  test('T79 G7 who was overtaken before it could store is told so, also if the work goes on as if nothing had happened', async () => {
    const request = fresh()
    const [one, two] = world().clients as [Idempotent<Tx>, Idempotent<Tx>]
    const slow = one(request, async ({ store }) => {
      await world().expire(request.scope, request.key, 'claim')
      assert.equal(await two(request, () => 'successor'), 'successor')
      await assert.rejects(
        world().transaction((tx) => store(tx, 'late')),
        { code: 'LEASE_LOST', reason: 'taken-over' },
      )
      return 'late'
    })
    await assert.rejects(slow, { code: 'LEASE_LOST', reason: 'taken-over' })
    assert.equal(await one(request, () => assert.fail('done already')), 'successor')
  })

  test('G7 who was overtaken cannot store its outcome, is told so, and guards refuse its fence', async () => {
    const request = fresh()
    const guard = memoryGuard<string>()
    const [one, two] = world().clients as [Idempotent<Tx>, Idempotent<Tx>]
    const gate = Promise.withResolvers<void>()
    const begun = Promise.withResolvers<void>()
    const slow = one(request, async ({ fence }) => {
      await guard.run(fence, (tx) => tx.set('paid by', 'nobody'))
      begun.resolve()
      await gate.promise
      await assert.rejects(
        guard.run(fence, (tx) => tx.set('paid by', 'the slow one')),
        { code: 'FENCE_STALE' },
      )
      return 'late'
    })
    const overtaken = assert.rejects(slow, { code: 'LEASE_LOST', reason: 'taken-over' })
    await begun.promise
    await world().expire(request.scope, request.key, 'claim')
    const taken = await two(request, async ({ fence, isTakeover }) => {
      await guard.run(fence, (tx) => tx.set('paid by', 'the successor'))
      return { isTakeover }
    })
    assert.deepEqual(taken, { isTakeover: true })
    gate.resolve()
    await overtaken
    assert.equal(guard.resource.get('paid by'), 'the successor')
    assert.deepEqual(await one(request, () => 'again'), taken)
  })

  test('a result that is stored in a transaction counts if it is committed, and not if it is rolled back', async () => {
    const request = fresh()
    const planted = new Error('planted')
    const failing = first()(request, ({ store }) =>
      world().transaction(async (tx) => {
        await store(tx, 'never')
        throw planted
      }),
    )
    await assert.rejects(failing, planted)
    const result = await first()(request, async ({ store }) => {
      await world().transaction((tx) => store(tx, 'in the transaction'))
      return 'what the work returned'
    })
    assert.equal(result, 'in the transaction')
    assert.equal(await first()(request, () => 'again'), 'in the transaction')
  })

  test('T79 a result whose COMMIT failed is reported to no caller, also if the work catches the failure', async () => {
    const request = fresh()
    const seen: boolean[] = []
    const failing = () =>
      first()(request, async ({ store, isTakeover }) => {
        seen.push(isTakeover)
        const committing = world().transaction(async (tx) => {
          await world().spoil(tx)
          await store(tx, 'never committed')
        })
        await assert.rejects(committing)
        return 'something else'
      })
    for (let time = 0; time < 2; time++)
      await assert.rejects(failing(), { code: 'NOT_COMMITTED', key: request.key, retryable: true })
    assert.deepEqual(seen, [false, true])
    const result = await first()(request, ({ isTakeover }) => `done, takeover: ${isTakeover}`)
    assert.equal(result, 'done, takeover: true')
  })

  test('T79 after a COMMIT that failed, a result that is stored in another transaction counts', async () => {
    const request = fresh()
    const result = await first()(request, async ({ store }) => {
      const committing = world().transaction(async (tx) => {
        await world().spoil(tx)
        await store(tx, 'never committed')
      })
      await assert.rejects(committing)
      await world().transaction((tx) => store(tx, 'declined'))
      return 'not looked at'
    })
    assert.equal(result, 'declined')
    assert.equal(await first()(request, () => assert.fail('done already')), 'declined')
  })

  test.each(['COMMIT', 'ROLLBACK'])(
    'T79 work that returns before the %s of its transaction is answered after it, with what was committed',
    async (end) => {
      const request = fresh()
      const order: string[] = []
      const gate = Promise.withResolvers<void>()
      const stored = Promise.withResolvers<void>()
      const ended = Promise.withResolvers<unknown>()
      const call = first()(request, async ({ store }) => {
        const transaction = world().transaction(async (tx) => {
          await store(tx, 'stored')
          stored.resolve()
          await gate.promise
          order.push(end)
          if (end === 'ROLLBACK') throw new Error('planted')
        })
        ended.resolve(transaction.catch(() => {}))
        await stored.promise
        return 'returned'
      }).finally(() => order.push('answered'))
      const answered = end === 'COMMIT' ? call : assert.rejects(call, { code: 'NOT_COMMITTED' })
      await stored.promise
      // Long enough for an answer that does not wait for the transaction.
      await sleep(100)
      gate.resolve()
      assert.equal(await answered, end === 'COMMIT' ? 'stored' : undefined)
      assert.deepEqual(order, [end, 'answered'])
      await ended.promise
      const next = await first()(request, () => 'again')
      assert.equal(next, end === 'COMMIT' ? 'stored' : 'again')
    },
  )

  test('T79 G11 work whose transaction stays open is told that its outcome is unknown, and the later COMMIT counts', async () => {
    const request = fresh()
    const gate = Promise.withResolvers<void>()
    const stored = Promise.withResolvers<void>()
    let transaction: Promise<void> | undefined
    const call = first()(request, async ({ store }) => {
      transaction = world().transaction(async (tx) => {
        await store(tx, 'stored')
        stored.resolve()
        await gate.promise
      })
      await stored.promise
      return 'returned'
    })
    await assert.rejects(call, {
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'unknown',
      message: /transaction of `store` is still open/,
    })
    gate.resolve()
    await transaction
    assert.equal(await first()(request, () => assert.fail('done already')), 'stored')
  })

  test('T79 a `store` that is kept is refused after the end, and replaces no outcome', async () => {
    for (const [work, outcome] of [
      [() => 'done', 'done'],
      [() => Promise.reject(new Error('planted')), undefined],
    ] as const) {
      const request = fresh()
      let kept: ((tx: Tx, result: unknown) => Promise<void>) | undefined
      const call = first()(request, ({ store }) => {
        kept = store
        return work()
      })
      await (outcome === undefined ? assert.rejects(call, /planted/) : call)
      await assert.rejects(
        world().transaction(async (tx) => kept?.(tx, 'late')),
        { code: 'LEASE_LOST', reason: 'released' },
      )
      assert.equal(await first()(request, () => 'again'), outcome ?? 'again')
    }
  })

  test('T79 a result that is committed is not replaced by another one of the same work', async () => {
    const request = fresh()
    const result = await first()(request, async ({ store }) => {
      for (let time = 0; time < 2; time++) await world().transaction((tx) => store(tx, { at: 1 }))
      assert.deepEqual(await first()(request, () => assert.fail('done already')), { at: 1 })
      await assert.rejects(
        world().transaction((tx) => store(tx, { at: 2 })),
        { code: 'INVALID_ARGUMENT', argument: 'result' },
      )
    })
    assert.deepEqual(result, { at: 1 })
    assert.deepEqual(await first()(request, () => assert.fail('done already')), { at: 1 })
  })

  test.each([
    ['JSON cannot express', 1n],
    ['is too large', 'x'.repeat(1_048_576)],
  ])('a result that %s is an error, and the work is not done again', async (_why, result) => {
    const request = fresh()
    await assert.rejects(
      first()(request, () => result),
      { code: 'INVALID_ARGUMENT', argument: 'result' },
    )
    await assert.rejects(
      first()(request, () => assert.fail('done already')),
      ({ code, failure }) => code === 'STORED_FAILURE' && /^result must/.test(failure.message),
    )
  })

  test('requests and options that make no sense are refused', async () => {
    const request = fresh()
    for (const [bad, options] of [
      [undefined],
      [{}],
      [{ ...request, scope: '' }],
      [{ ...request, key: '' }],
      [{ ...request, key: 'x'.repeat(256) }],
      [{ ...request, payload: 1n }],
      [{ ...request, payload: () => {} }],
      [{ ...request, keys: 'x' }],
      [request, { ttlMs: 1 }],
      [request, { waitMs: -1 }],
      [request, { keepMs: 0 }],
      [request, { storeError: true }],
      [request, { signal: {} }],
    ] as unknown as [never, never?][])
      await assert.rejects(
        first()(bad, () => assert.fail('refused'), options),
        { code: 'INVALID_ARGUMENT' },
      )
    await assert.rejects(first()(request, undefined as never), { code: 'INVALID_ARGUMENT' })
  })

  test('a process that dies in the middle is taken over when its time is over, with a higher token', async () => {
    const request = fresh()
    const program = await startProgram(`
      ${world().program}
      await idempotent(${JSON.stringify(request)}, async ({ fence }) => {
        say('token ' + fence.token)
        await new Promise(() => setInterval(() => {}, 1_000))
      })`)
    const [token] = await program.matched(/token (\d+)/)
    await program.kill()
    await assert.rejects(
      first()(request, () => assert.fail('its time is not over'), { waitMs: 0 }),
      { code: 'ACQUIRE_TIMEOUT' },
    )
    await world().expire(request.scope, request.key, 'claim')
    const taken = await first()(request, ({ fence, isTakeover }) => ({
      isTakeover,
      isHigher: fence.token > BigInt(token ?? 'none'),
    }))
    assert.deepEqual(taken, { isTakeover: true, isHigher: true })
  })

  test('G3 T8 a process that is stopped past its time is told when it wakes, and its outcome does not count', async () => {
    const request = fresh()
    const program = await startProgram(`
      ${world().program}
      await idempotent(${JSON.stringify(request)}, async (context) => {
        say('working')
        await new Promise((resolve) => setTimeout(resolve, 50))
        while (!context.signal.aborted) await new Promise((resolve) => setTimeout(resolve, 10))
        say('told ' + context.signal.reason.code)
        return 'late'
      }, { ttlMs: 2_000 }).catch((error) => say('refused ' + error.code))`)
    await program.matched(/working/)
    program.process.kill('SIGSTOP')
    assert.equal(await first()(request, ({ isTakeover }) => `taken over: ${isTakeover}`), 'taken over: true')
    program.process.kill('SIGCONT')
    await program.matched(/told LEASE_LOST/)
    await program.matched(/refused LEASE_LOST/)
    await program.kill()
    assert.equal(await first()(request, () => 'again'), 'taken over: true')
  })
}
