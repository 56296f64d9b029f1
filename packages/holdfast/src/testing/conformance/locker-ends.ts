/** How leases and lockers end on this engine: lost, taken, too long, closed, and twice. */
import assert from 'node:assert/strict'
import { BackendUnavailableError, isHoldfastError } from '../../base/errors.ts'
import { call, topic } from './toolbox.ts'

export const lockerEndCases = topic('through the locker, to the end', [
  {
    rule: 'C197',
    title: 'G3 T33 without confirmed renewals a lease stops believing before the engine gives the name away',
    async play(stage) {
      const keepAlive = () =>
        Promise.reject(new BackendUnavailableError('engine', 'the connection is cut', 'not-applied'))
      const cutOff = await stage.locker({}, { session: () => ({ keepAlive }) })
      const [, other] = await stage.twoLockers()
      const lease = await stage.drive(cutOff.acquire('x'))
      const stepMs = stage.ttlMs / 50
      while (lease.state !== 'lost') {
        const taken = await other.tryAcquire('x')
        // The answer may take its time, also beyond the end of belief: what counts is what the holder believes then.
        if (taken !== null) assert.equal(lease.state, 'lost', 'not while the holder believes')
        await taken?.release()
        await stage.passTime(stepMs)
      }
      assert.equal(lease.remainingMs, 0)
      assert(lease.signal.aborted && isHoldfastError(lease.signal.reason, 'LEASE_LOST'))
      await stage.drive(other.acquire('x', { waitMs: stage.ttlMs * 5 }))
      assert.equal(lease.state, 'lost', 'G4: nothing revives it')
    },
  },
  {
    rule: 'C198',
    title:
      'T34 G4 a lease that was released by force is lost at the next keep-alive, with the reason, for good',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const lease = await stage.drive(one.acquire('x'))
      assert.equal(await stage.drive(other.forceRelease('x', { all: true, reason: 'stuck' })), 1)
      await stage.eventually('the holder learns it', () => lease.signal.aborted)
      assert(isHoldfastError(lease.signal.reason, 'LEASE_LOST'))
      assert.equal(lease.signal.reason.reason, 'force-released')
      const successor = await stage.drive(other.acquire('x'))
      assert.equal(await stage.drive(lease.release()), 'not-held')
      assert.equal(lease.state, 'lost')
      await stage.passTime(stage.ttlMs)
      assert.equal(successor.state, 'held')
    },
  },
  {
    rule: 'C205',
    title: 'G6 T53 closing a locker releases what it holds, ends its waits, and leaves nothing',
    touches: 'client',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const kept = await stage.drive(other.acquire('kept'))
      await stage.drive(one.acquire('x'))
      await stage.drive(one.acquire('y'))
      const waiting = stage.start(one.acquire('kept', { waitMs: Number.POSITIVE_INFINITY }))
      await stage.quiet()
      await stage.drive(one.close())
      await assert.rejects(waiting, (error) => isHoldfastError(error, 'CLOSED'))
      const left = await stage.list()
      assert.deepEqual(
        left.map(({ name, waiters }) => [name, waiters.length]),
        [['kept', 0]],
      )
      assert.equal(await stage.drive(kept.release()), 'released')
    },
  },
  {
    rule: 'C206',
    title: 'a lease that is held for maxHoldMs is lost, and then released',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const lease = await stage.drive(one.acquire('x', { maxHoldMs: stage.ttlMs * 2 }))
      await stage.passTime(stage.ttlMs)
      assert.equal(lease.state, 'held')
      await stage.drive(other.acquire('x', { waitMs: stage.ttlMs * 5 }))
      assert.equal(lease.state, 'lost')
      assert.equal((lease.signal.reason as { reason?: string }).reason, 'max-hold')
    },
  },
  {
    rule: 'C211',
    title:
      'T73 G6 the late twin of a request, landing after the release, is given up while the session lives on',
    async play(stage) {
      const twins: (() => Promise<unknown>)[] = []
      const one = await stage.locker(
        {},
        {
          session: (inner) => ({
            tryAcquire(request, original) {
              twins.push(() => inner.tryAcquire(request, call()))
              return inner.tryAcquire(request, original)
            },
          }),
        },
      )
      await stage.drive(one.tryAcquire('kept'))
      const lease = await stage.drive(one.tryAcquire('x'))
      assert.equal(await stage.drive(lease?.release() ?? Promise.reject()), 'released')
      await stage.drive(Promise.allSettled(twins.map((send) => send())))
      await stage.eventually('the twin is given up', async () => (await stage.inspect('x')) === null)
      assert.notEqual(await stage.inspect('kept'), null)
    },
  },
])
