import assert from 'node:assert/strict'
import { AsyncLocalStorage } from 'node:async_hooks'
import { describe, onTestFinished, test, vi } from 'vitest'
import { createRig } from '../../test/rig.ts'
import { memory } from '../engines/memory/index.ts'
import { createLocker } from '../locker/locker.ts'
import type { CallKind, PlannedCall } from '../testing/faults.ts'
import { faultyBackend } from '../testing/faulty-backend.ts'
import { sleep, systemClock } from './clock.ts'
import { type EventKind, onEvent } from './events.ts'

const request = new AsyncLocalStorage<string>()
const ttlMs = 9_000

describe('what comes from a timer of the system clock', () => {
  test.each([1_009, 11.5])('%d ms: it sees neither who listed it nor who armed it', async (delayMs) => {
    const seen: unknown[] = []
    const listed = (name: string) =>
      request.run(name, () => systemClock.setTimer(delayMs, () => seen.push(request.getStore())))
    listed('the first, who arms it')
    listed('the second')
    await vi.waitFor(() => assert.equal(seen.length, 2), 120_000)
    assert.deepEqual(seen, [undefined, undefined])
  })

  test('a sleeper wakes up in its own', async () => {
    const wake = (name: string) =>
      request.run(name, async () => {
        await sleep(systemClock, 1_013, { keepsProcessAlive: true })
        return request.getStore()
      })
    assert.deepEqual(await Promise.all([wake('one'), wake('two')]), ['one', 'two'])
  })
})

/** A client whose keep-alives tell in which context they are made, and can be made to fail. */
function createStage() {
  const { clock, locker } = createRig()
  const keptAliveIn: unknown[] = []
  const failing = new Set<CallKind>()
  const plan = ({ kind }: PlannedCall) => {
    if (kind === 'keepAlive') keptAliveIn.push(request.getStore())
    return failing.has(kind) ? ({ kind: 'error-before', error: new Error('planted') } as const) : null
  }
  const client = locker({ wrap: (backend) => faultyBackend(backend, { plan }) })
  return { clock, client, keptAliveIn, breakIt: () => void failing.add('keepAlive') }
}

function hear(kinds: readonly EventKind[]): [EventKind, unknown][] {
  const heard: [EventKind, unknown][] = []
  for (const kind of kinds) onTestFinished(onEvent(kind, () => void heard.push([kind, request.getStore()])))
  return heard
}

describe('handlers of one caller never see the context of another', () => {
  test("onJeopardy, a lost lease's signal and the events about them, although another request renewed", async () => {
    const { clock, client, keptAliveIn, breakIt } = createStage()
    const heard = hear(['renewed', 'renewal-failed', 'jeopardy', 'lost'])
    const seen: [string, unknown][] = []
    const onJeopardy = () => void seen.push(['onJeopardy', request.getStore()])
    const other = await request.run('the other', () => client.acquire('other', { ttlMs }))
    const ours = await request.run('ours', () => client.acquire('ours', { ttlMs, onJeopardy }))
    ours.signal.addEventListener('abort', () => seen.push(['abort', request.getStore()]))
    await request.run('the other', () => other.renew())
    breakIt()
    await request.run('the other', () => assert.rejects(other.renew()))
    await request.run('the other', () => clock.advance(ttlMs))
    assert.equal(ours.state, 'lost')
    assert.deepEqual(seen, [
      ['onJeopardy', undefined],
      ['abort', undefined],
    ])
    assert.deepEqual([...new Set(heard.map(([kind]) => kind))].sort(), [
      'jeopardy',
      'lost',
      'renewal-failed',
      'renewed',
    ])
    assert.deepEqual(
      heard.filter(([, context]) => context !== undefined),
      [],
    )
    assert.deepEqual(keptAliveIn.slice(0, 2), [undefined, undefined], 'those that the other asked for')
  })

  test('an abort that is noticed in the call of another', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const ours = await client.acquire('ours', { ttlMs, maxHoldMs: ttlMs })
    const seen: unknown[] = []
    ours.signal.addEventListener('abort', () => seen.push(request.getStore()))
    clock.suspend(ttlMs)
    await request.run('the other', () => client.acquire('other', { ttlMs }))
    assert.equal(ours.signal.aborted, true)
    assert.deepEqual(seen, [undefined])
  })

  test('closing aborts in no context either', async () => {
    const client = createRig().locker()
    const ours = await client.acquire('ours', { ttlMs })
    const seen: unknown[] = []
    ours.signal.addEventListener('abort', () => seen.push(request.getStore()))
    await request.run('who closes', () => client.close())
    assert.deepEqual(seen, [undefined])
  })
})

describe('what a call did is told in its own context', () => {
  test('acquired, busy, timed out, released', async () => {
    const { clock, locker } = createRig()
    const heard = hear(['acquired', 'busy', 'timed-out', 'released'])
    const lease = await request.run('a', () => locker().acquire('n', { ttlMs }))
    const other = locker()
    await request.run('b', () => other.tryAcquire('n'))
    const late = request.run('c', () => assert.rejects(other.acquire('n', { waitMs: 50 })))
    await clock.advance(50)
    await late
    await request.run('d', () => lease.release())
    assert.deepEqual(heard, [
      ['acquired', 'a'],
      ['busy', 'b'],
      ['timed-out', 'c'],
      ['released', 'd'],
    ])
  })

  test('and so is a time-out of the system clock, although the timer was another’s', async () => {
    await using client = createLocker(memory({}))
    await using _ = await client.acquire('n', { ttlMs: 60_000 })
    const heard = hear(['timed-out'])
    const ends = ['one', 'two'].map((name) =>
      request.run(name, async () => {
        await assert.rejects(client.acquire('n', { waitMs: 1_019 }))
        return request.getStore()
      }),
    )
    assert.deepEqual(await Promise.all(ends), ['one', 'two'])
    assert.deepEqual(heard.map(([, context]) => context).sort(), ['one', 'two'])
  })
})
