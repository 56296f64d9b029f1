/** This file is not beside the sources, because there the library would take the frames of the test for its own. */
import { expect, onTestFinished, test } from 'vitest'
import { type HoldfastEvents, onEvent } from '../src/base/events.ts'
import type { Locker } from '../src/base/types.ts'
import { watchLockOrder } from '../src/recipes/lock-order.ts'
import { traceLocker } from '../src/telemetry/spans.ts'
import { collect, createRig } from './rig.ts'

const span = { setAttributes() {}, setStatus() {}, addEvent() {}, end() {} }
const tracer = {
  startSpan: () => span,
  startActiveSpan: <T>(_name: string, _options: object, run: (active: typeof span) => T) => run(span),
}

/** A client whose leases are dropped, and the warnings so far. */
function setStage() {
  const { clock, locker } = createRig()
  const client = locker({ dropsLeases: true })
  const told: HoldfastEvents['warning'][] = []
  onTestFinished(onEvent('warning', (event) => void told.push(event)))
  /** `take` returns the signal of the lease that it drops. */
  const drop = async (take: () => Promise<AbortSignal>) => {
    const signal = await take()
    // It is watched from its first renewal on.
    await clock.advance(6_000)
    await collect(() => signal.aborted)
    expect(signal.reason).toMatchObject({ reason: 'dropped' })
    await clock.settle()
  }
  return { client, told, drop }
}

test('the first lease that the program drops is told with name and owner, later ones with their call site, once for each', async () => {
  const { client, told, drop } = setStage()
  const early = await client.acquire('early')
  await drop(async () => (await client.acquire('n', { owner: 'order 7' })).signal)
  expect(told).toEqual([
    {
      backend: 'memory',
      namespace: 'default',
      code: 'HOLDFAST_DROPPED',
      warning: expect.stringMatching(
        /^the lease on "n" with owner "order 7" was garbage collected .*From now on/,
      ),
    },
  ])
  const atOnePlace = async () => (await client.acquire('m')).signal
  await drop(atOnePlace)
  await drop(atOnePlace)
  expect(told.slice(1).map(({ warning }) => warning)).toEqual([
    expect.stringMatching(/^the lease on "m" was .*It was acquired at .*test\/dropped\.test\.ts:\d+:\d+$/),
  ])
  await drop(async () => (await client.acquirePermits('p', { capacity: 1 })).signal)
  expect(new Set(told.map(({ warning }) => warning)).size).toBe(3)
  await early.release()
})

test('the call site is outside of the library, also through its wrappers, and does not keep the lease', async () => {
  const { client, told, drop } = setStage()
  const wrapped: Locker = traceLocker(watchLockOrder(client), { tracer })
  onTestFinished(onEvent('lock-order', () => {}))
  await drop(async () => {
    // A captured stack refers to the functions on it, and this one to the lease.
    let held: { readonly signal: AbortSignal } | undefined
    const take = async () => {
      held = await wrapped.acquire('n')
      return held.signal
    }
    return take()
  })
  expect(told.at(-1)?.warning).toMatch(/acquired at .*test\/dropped\.test\.ts:\d+:\d+$/)
})

test('a stack that a tool has made into something else than text refuses no acquire', async () => {
  const { client, drop } = setStage()
  await drop(async () => (await client.acquire('n')).signal)
  const { prepareStackTrace } = Error
  onTestFinished(() => {
    Error.prepareStackTrace = prepareStackTrace
  })
  Error.prepareStackTrace = (_, sites) => sites
  const lease = await client.acquire('n').finally(() => {
    Error.prepareStackTrace = prepareStackTrace
  })
  expect(lease.state).toBe('held')
  await lease.release()
})
