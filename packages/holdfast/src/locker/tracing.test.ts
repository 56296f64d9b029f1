import assert from 'node:assert/strict'
import { AsyncLocalStorage } from 'node:async_hooks'
import { tracingChannel } from 'node:diagnostics_channel'
import { onTestFinished, test } from 'vitest'
import { createRig } from '../../test/rig.ts'
import { isHoldfastError } from '../base/errors.ts'
import { onEvent } from '../base/events.ts'

/** Messages of the channel, in order, about this holder. */
function listen(name: string, holder: string) {
  const told: { readonly phase: string; readonly context: Record<string, unknown> }[] = []
  const subscriber = (phase: string) => (context: object) => {
    if ((context as { holder?: unknown }).holder === holder) told.push({ phase, context: context as never })
  }
  const subscribers = {
    start: subscriber('start'),
    end: subscriber('end'),
    asyncStart: subscriber('asyncStart'),
    asyncEnd: subscriber('asyncEnd'),
    error: subscriber('error'),
  }
  const channel = tracingChannel<object, object>(name)
  channel.subscribe(subscribers)
  onTestFinished(() => channel.unsubscribe(subscribers))
  return told
}

test('a span goes around the wait, and has the id of its events', async () => {
  const { clock, locker } = createRig()
  const held = await locker().acquire('x')
  const told = listen('holdfast:acquire', 'traced')
  const ids: string[] = []
  for (const kind of ['waiting', 'acquired'] as const)
    onTestFinished(
      onEvent(kind, ({ holder, attemptId }) => void (holder === 'traced' && ids.push(attemptId))),
    )
  const waiting = locker({ holder: 'traced' }).acquire('x')
  await clock.settle()
  assert.deepEqual(
    told.map(({ phase }) => phase),
    ['start', 'end'],
  )
  await held.release()
  await waiting
  assert.deepEqual(
    told.map(({ phase }) => phase),
    ['start', 'end', 'asyncStart', 'asyncEnd'],
  )
  const { attemptId, name, result } = told[0]?.context ?? {}
  assert.deepEqual([name, result], ['x', undefined])
  assert.deepEqual(ids, [attemptId, attemptId])
})

test('two calls have two ids, and a call that fails tells its error', async () => {
  const { locker } = createRig()
  await locker().acquire('x')
  const told = listen('holdfast:acquire', 'traced')
  const client = locker({ holder: 'traced' })
  assert.equal(await client.tryAcquire('x'), null)
  await assert.rejects(client.acquire('x', { waitMs: 0 }), { code: 'ACQUIRE_TIMEOUT' })
  const starts = told.filter(({ phase }) => phase === 'start')
  assert.equal(new Set(starts.map(({ context }) => context.attemptId)).size, 2)
  const [failed] = told.filter(({ phase }) => phase === 'error')
  assert.ok(isHoldfastError(failed?.context.error, 'ACQUIRE_TIMEOUT'))
})

test('the context says whether it was granted, before the span ends, and hands out no lease', async () => {
  const { locker } = createRig()
  const told = listen('holdfast:acquire', 'traced')
  const busyAt: number[] = []
  onTestFinished(onEvent('busy', ({ holder }) => void (holder === 'traced' && busyAt.push(told.length))))
  const client = locker({ holder: 'traced' })
  const lease = await client.acquire('x')
  assert.equal(await client.tryAcquire('x'), null)
  await assert.rejects(client.acquire('x', { waitMs: 0 }), { code: 'ACQUIRE_TIMEOUT' })
  const ends = told.filter(({ phase }) => phase === 'asyncEnd')
  assert.deepEqual(
    ends.map(({ context }) => context.outcome),
    ['granted', 'busy', undefined],
  )
  assert.deepEqual(busyAt, [6], 'busy is told within its span')
  for (const { context } of ends) assert.ok(!Object.values(context).includes(lease))
})

test('a span goes around the body of withLease, which runs in its context', async () => {
  const { locker } = createRig()
  const told = listen('holdfast:body', 'traced')
  const span = new AsyncLocalStorage<object>()
  const channel = tracingChannel<object, object>('holdfast:body')
  channel.start.bindStore(span, (context) => context)
  onTestFinished(() => void channel.start.unbindStore(span))
  const client = locker({ holder: 'traced' })
  const options = { mode: 'shared', owner: 'order 7', note: 'nightly' } as const
  const within = await client.withLease('x', options, async () => span.getStore())
  const [start] = told
  assert.equal(within, start?.context)
  assert.partialDeepStrictEqual(start?.context, { name: 'x', ...options })
  await assert.rejects(
    client.withLease('x', () => {
      throw new Error('the body failed')
    }),
    /the body failed/,
  )
  assert.deepEqual(
    told.map(({ phase }) => phase),
    ['start', 'end', 'asyncStart', 'asyncEnd', 'start', 'end', 'error', 'asyncStart', 'asyncEnd'],
  )
})
