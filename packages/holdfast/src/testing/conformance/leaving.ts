/** Nothing is left behind by clients that finish, are cancelled, or disappear. */
import assert from 'node:assert/strict'
import { isHoldfastError } from '../../base/errors.ts'
import { publicIdOf } from '../../base/ids.ts'
import type { WatchEvent } from '../../spi.ts'
import { enqueued } from '../enqueued.ts'
import {
  abortedCall,
  call,
  isNotApplied,
  newSessionId,
  operatorCall,
  request,
  type Stage,
  topic,
} from './toolbox.ts'

export const leavingCases = topic('nothing left behind', [
  {
    rule: 'C170',
    title: 'G6 T38 when everything is released, nothing is left',
    async play(stage) {
      const [ada, bob] = await stage.two()
      for (let round = 0; round < 10; round++) {
        const [x, y] = [await ada.take('x'), await bob.take(`y/${round}`)]
        await bob.expectBusy('x')
        await ada.release(x)
        await bob.release(y)
      }
      assert.deepEqual(await stage.list(), [])
      assert.equal(await stage.inspect('x'), null)
    },
  },
  {
    rule: 'C171',
    title: 'G6 T20 when holder and waiters disappear, nothing is left',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = [await stage.mortal(), await stage.mortal(), await stage.mortal()]
      await ada.take('x')
      await bob.enqueue('x')
      await eve.enqueue('x')
      await stage.outlive(eve)
      await stage.quiet()
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C172',
    title: 'G6 when sessions are closed, nothing is left',
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.take('x')
      await ada.take('y')
      await bob.take('z')
      await ada.close()
      await bob.close()
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C173',
    title: 'T14 G6 an acquire whose caller has already gone is not made, says so, and leaves nothing',
    touches: 'client',
    async play(stage) {
      const ada = await stage.actor()
      const opening = ada.backend.openSession(
        { id: newSessionId(), ttlMs: stage.ttlMs, holder: 'late' },
        abortedCall(),
      )
      await assert.rejects(opening, isNotApplied)
      await assert.rejects(ada.session.tryAcquire(request('x'), abortedCall()), isNotApplied)
      if (ada.session.enqueue)
        await assert.rejects(enqueued(ada.session, request('x'), abortedCall()), isNotApplied)
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C174',
    title: 'T14 a call whose caller has already gone changes nothing of what is held',
    touches: 'client',
    async play(stage) {
      const ada = await stage.actor()
      const held = await ada.take('x')
      const { session } = ada
      await assert.rejects(session.release(held, { keepForMs: 0 }, abortedCall()), isNotApplied)
      await assert.rejects(session.abandon(held, abortedCall()), isNotApplied)
      await assert.rejects(session.close(abortedCall()), isNotApplied)
      await assert.rejects(session.keepAlive({ held: [held], waiting: [] }, abortedCall()), isNotApplied)
      if (session.setData) await assert.rejects(session.setData(held, 'late', abortedCall()), isNotApplied)
      assert.deepEqual(await ada.stayAlive({ held: [held] }), [])
      assert.equal((await stage.inspect('x'))?.data, undefined)
      assert.equal(await ada.release(held), 'released')
    },
  },
  {
    rule: 'C175',
    title: "T14 an operator's call whose caller has already gone is not made either",
    touches: 'client',
    async play(stage) {
      const ada = await stage.actor()
      const { backend } = ada
      const held = await ada.take('x')
      const gone = operatorCall(abortedCall())
      await assert.rejects(backend.forceRelease('x', [publicIdOf(held.attempt)], 'late', gone), isNotApplied)
      await assert.rejects(backend.forget('x', 'a note', gone), isNotApplied)
      await assert.rejects(backend.resize('x', { from: 2, to: 3 }, gone), isNotApplied)
      await assert.rejects(backend.inspect('x', abortedCall()), isNotApplied)
      await assert.rejects(backend.list('', { limit: 10 }, abortedCall()), isNotApplied)
      const shown = { name: 'x', id: publicIdOf(held.attempt), token: 1n }
      await assert.rejects(backend.check(shown, abortedCall()), isNotApplied, 'check')
      if (backend.sessions)
        await assert.rejects(backend.sessions({ limit: 10 }, abortedCall()), isNotApplied, 'sessions')
      if (backend.diagnose) await assert.rejects(backend.diagnose(abortedCall()), isNotApplied, 'diagnose')
      await assert.rejects(backend.attachSession(ada.session.handle, abortedCall()), isNotApplied)
      await ada.expectHolding(held)
    },
  },
  {
    rule: 'C176',
    title: 'G6 T15 an acquire that is cancelled on its way settles, and leaves nothing once abandoned',
    touches: 'client',
    play: cancelledInFlight,
  },
  {
    rule: 'C177',
    title: 'G11 after its end a client refuses everything, with a typed error',
    touches: 'client',
    async play(stage) {
      const { backend, session } = await stage.actor()
      await backend[Symbol.asyncDispose]()
      const asked = { id: newSessionId(), ttlMs: stage.ttlMs, holder: 'late' }
      const claim = { ...request('x'), grantId: '1' }
      const page = { limit: 10 }
      const calls: Record<string, () => Promise<unknown> | undefined> = {
        openSession: () => backend.openSession(asked, call()),
        attachSession: () => backend.attachSession(session.handle, call()),
        inspect: () => backend.inspect('x', call()),
        list: () => backend.list('', page, call()),
        sessions: () => backend.sessions?.(page, call()),
        diagnose: () => backend.diagnose?.(call()),
        check: () => backend.check({ name: 'x', id: 'an id', token: 1n }, call()),
        forceRelease: () => backend.forceRelease('x', ['an id'], 'late', operatorCall()),
        resize: () => backend.resize('x', { from: 2, to: 3 }, operatorCall()),
        forget: () => backend.forget('x', 'a note', operatorCall()),
        watch: () => backend.watch && firstEvent(stage, backend.watch('', {}, call())),
        keepAlive: () => session.keepAlive({ held: [], waiting: [] }, call()),
        tryAcquire: () => session.tryAcquire(request('x'), call()),
        enqueue: () => session.enqueue && enqueued(session, request('x'), call()),
        abandon: () => session.abandon(claim, call()),
        setData: () => session.setData?.(claim, 'late', call()),
        release: () => session.release(claim, { keepForMs: 0 }, call()),
        close: () => session.close(call()),
      }
      for (const [name, run] of Object.entries(calls)) {
        const running = run()
        if (running === undefined) continue
        const outcome = await running.then(
          () => 'it answered',
          (error: unknown) => (isHoldfastError(error, 'CLOSED') ? 'CLOSED' : `${error}`),
        )
        assert.equal(outcome, 'CLOSED', `${name} after the end: ${outcome}`)
      }
    },
  },
  {
    rule: 'C178',
    title: 'G11 the end of a client ends its waits, and a second end is harmless',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.take('x')
      const wait = await bob.enqueue('x')
      await bob.backend[Symbol.asyncDispose]()
      await wait.ends('rejected')
      assert(isHoldfastError(wait.error), 'a typed error')
      await bob.backend[Symbol.asyncDispose]()
    },
  },
  {
    rule: 'C179',
    title: 'the end of one client does not disturb another',
    touches: 'client',
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await bob.take('x')
      const waiting = eve.session.enqueue === undefined ? undefined : await eve.enqueue('x')
      await ada.backend[Symbol.asyncDispose]()
      assert.deepEqual(await bob.stayAlive({ held: [held] }), [])
      await bob.release(held)
      await waiting?.granted()
    },
  },
])

function firstEvent(stage: Stage, events: AsyncIterable<WatchEvent>): Promise<unknown> {
  return stage.drive(events[Symbol.asyncIterator]().next(), stage.ttlMs)
}

async function cancelledInFlight(stage: Stage): Promise<void> {
  const [ada, bob] = await stage.two()
  for (let round = 0; round < 5; round++) {
    const controller = new AbortController()
    const asked = request('x')
    const trying = ada.session.tryAcquire(asked, call(controller.signal))
    controller.abort(new Error('the caller has lost interest'))
    const [outcome] = await stage.drive(Promise.allSettled([trying]))
    if (outcome?.status === 'rejected') assert(isHoldfastError(outcome.reason, 'BACKEND_UNAVAILABLE'))
    await ada.abandon(asked)
    await bob.release(await bob.take('x'))
  }
  assert.deepEqual(await stage.list(), [])
}
