/**
 * Capabilities that a backend may lack. A case that needs something which `info` says is not there does not run: instead it is
 * verified that the backend refuses the thing rather than pretending (G12).
 */
import assert from 'node:assert/strict'
import { isHoldfastError } from '../../base/errors.ts'
import type { Backend } from '../../spi.ts'
import { expectMs } from './counting.ts'
import type { Stage } from './stage.ts'
import { Watcher } from './watcher.ts'

export type Capability =
  | 'fencing'
  | 'queue'
  | 'shared'
  | 'permits'
  | 'data'
  | 'lock-delay'
  | 'hold-at-least'
  | 'watch'
  | 'causes'
  | 'sessions'
  | 'attach'
  | 'session-claims'

export function hasCapability(
  { info, watch, sessions }: Backend,
  capability: Capability,
): boolean | undefined {
  switch (capability) {
    case 'fencing':
      return info.fencing === 'fenced'
    case 'queue':
      return info.waiting === 'queue'
    case 'shared':
    case 'permits':
      return info.modes.includes(capability)
    case 'data':
      return info.data
    case 'lock-delay':
      return info.lockDelay !== 'none'
    case 'hold-at-least':
      return info.holdAtLeast !== 'none'
    case 'watch':
      return watch !== undefined
    case 'sessions':
      return sessions !== undefined
    // Not told by `info`: the harness declares it, and the smaller promise is tested instead.
    case 'attach':
    case 'causes':
    case 'session-claims':
      return undefined
  }
}

const isUnsupported = (error: unknown) => isHoldfastError(error, 'UNSUPPORTED')

/** How each shows that it is not there. */
export const refusals: Record<Capability, (stage: Stage) => Promise<void>> = {
  async fencing(stage) {
    const ada = await stage.actor()
    assert.equal((await ada.take('unfenced')).token, null, 'an unfenced backend gives no token')
  },
  async queue(stage) {
    const ada = await stage.actor()
    assert.equal(ada.session.enqueue, undefined, 'without a queue there is no enqueue')
  },
  async shared(stage) {
    const locker = await stage.locker()
    await assert.rejects(locker.tryAcquire('x', { mode: 'shared' }), isUnsupported)
  },
  async permits(stage) {
    const locker = await stage.locker()
    await assert.rejects(locker.tryAcquirePermits('x', { capacity: 3 }), isUnsupported)
  },
  async data(stage) {
    const locker = await stage.locker()
    const lease = await stage.drive(locker.acquire('without data'))
    await assert.rejects(lease.setData('a note'), isUnsupported)
  },
  async 'lock-delay'(stage) {
    const locker = await stage.locker()
    await assert.rejects(locker.tryAcquire('x', { lockDelayMs: stage.ttlMs }), isUnsupported)
  },
  async 'hold-at-least'(stage) {
    const locker = await stage.locker()
    await assert.rejects(locker.tryAcquire('x', { holdAtLeastMs: stage.ttlMs }), isUnsupported)
  },
  async watch(stage) {
    assert.equal((await stage.client()).watch, undefined)
  },
  /** A lease that was not released ended, and the watch does not say how. It is never said to be released. */
  async causes(stage) {
    if ((await stage.observer()).watch === undefined) return
    const watcher = await Watcher.start(stage)
    const [bob, ada] = await stage.mortalAndOne()
    await ada.take('x')
    await ada.operator.force('x')
    await bob.take('y')
    await stage.outlive(bob)
    await watcher.receives(4)
    const ends = watcher.story.filter((event) => !event.startsWith('acquired '))
    assert.deepEqual(
      ends.map((event) => event.replace('force-released', 'ended')),
      ['ended x', 'ended y'],
    )
  },
  async sessions(stage) {
    const locker = await stage.locker()
    await assert.rejects(locker.sessions(), isUnsupported)
  },
  async attach(stage) {
    const ada = await stage.actor()
    await assert.rejects(stage.attach(ada), isUnsupported)
  },
  /** Each claim has a time of its own: it ends unless a keep-alive lists it, and counts from its own request. */
  async 'session-claims'(stage) {
    const [ada, bob] = await stage.mortalAndOne()
    const { info } = ada.backend
    const { ttlMs } = ada.session
    const resolutionMs = stage.world.resolutionMs
    const [sentMs, held] = [stage.clock.monotonicMs(), await ada.take('tried')]
    expectMs('a grant counts from', held.since.monotonicMs, { max: sentMs + resolutionMs })
    const endMs = stage.clock.monotonicMs() + ttlMs + info.expirySlackMs(ttlMs) + resolutionMs
    while (stage.clock.monotonicMs() < endMs) {
      await stage.passTime(ttlMs / 3)
      await ada.stayAlive()
    }
    const taken = await bob.try('tried')
    assert(
      taken.kind === 'granted',
      "claims live as long as their session: remove 'session-claims' from 'lacks'",
    )
    if (ada.session.enqueue === undefined) return
    const queuedMs = stage.clock.monotonicMs()
    const wait = await ada.enqueue('tried')
    await stage.passTime(ttlMs / 2)
    await bob.release(taken.grant)
    const { since } = await wait.granted()
    expectMs('a grant that was pushed counts from', since.monotonicMs, { max: queuedMs + resolutionMs })
  },
}
