/** When time runs out: not early, not late, and never believed longer than the engine keeps to it. */
import assert from 'node:assert/strict'
import { publicIdOf } from '../../base/ids.ts'
import type { Grant } from '../../spi.ts'
import { call, hookOf, request, type Stage, topic } from './toolbox.ts'

export const expiryCases = topic('expiry', [
  {
    rule: 'C57',
    title: 'G13 a name is not given to another while its holder may believe',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      await stage.untilBeliefEnds(ada, held)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C58',
    title: 'G13 a keep-alive postpones that by a whole TTL from its sending',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      await stage.passTime(ada.session.ttlMs / 2)
      const kept = await ada.keepAlive({ held: [held] })
      assert(kept.kind === 'alive')
      assert(
        kept.since.monotonicMs >= held.since.monotonicMs + ada.session.ttlMs / 2 - stage.world.resolutionMs,
      )
      await stage.untilBeliefEnds(ada, kept)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C59',
    title: 'T64 G3 a grant on an old session is believed no longer than the engine keeps it',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      await stage.passTime(ada.session.ttlMs / 2)
      const held = await ada.take('x')
      await stage.untilBeliefEnds(ada, held)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C60',
    title: 'T1 G3 a grant counts from a request that was sent before it was asked for, not from its answer',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const delayMs = ada.session.ttlMs / 4
      const sentMs = stage.clock.monotonicMs()
      const delayAnswers = hookOf(stage.world, 'delayAnswers')
      await delayAnswers(delayMs)
      const result = await stage.drive(ada.try('x'))
      assert(result.kind === 'granted')
      assert(result.grant.since.monotonicMs <= sentMs + stage.world.resolutionMs)
      await delayAnswers(0)
      await stage.untilBeliefEnds(ada, result.grant)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C61',
    title: 'G10 a name whose holder is gone is free when its time and the declared slack are over',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      await ada.take('x')
      await stage.outlive(ada)
      await bob.take('x')
    },
  },
  {
    rule: 'C62',
    title: 'G10 everything that an expired session held becomes free',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const names = ['x', 'y', 'a/b', 'a/c']
      for (const name of names) await ada.take(name)
      await stage.outlive(ada)
      for (const name of names) await bob.take(name)
    },
  },
  {
    rule: 'C63',
    title: 'G10 the first in line is served when the holder expires, without anybody calling',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      await ada.take('x')
      const place = await bob.line('x')
      await stage.outlive(ada)
      await place.granted(stage.ttlMs / 10)
    },
  },
  {
    rule: 'C64',
    title: 'G13 the first in line is not served before',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      const place = await bob.line('x')
      await stage.untilBeliefEnds(ada, held)
      assert.equal(place.state, 'waiting')
    },
  },
  {
    rule: 'C65',
    title: 'T48 what has expired is not shown any more, and a take-over leaves nothing of the old holder',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      assert.notEqual(await stage.inspect('x'), null)
      await stage.outlive(ada)
      assert.equal(await stage.inspect('x'), null)
      assert.deepEqual(await stage.list(), [])
      assert.equal(await ada.holds(held), false)
      const taken = await bob.take('x')
      const ids = (await stage.inspect('x'))?.holders.map(({ id }) => id)
      assert.deepEqual(ids, [publicIdOf(taken.attempt)])
      assert.equal(await ada.holds(held), false)
    },
  },
  {
    rule: 'C66',
    title: 'T16 an expired session can still be spoken to, and is told that it has nothing',
    async play(stage) {
      const ada = await stage.mortal()
      const held = await ada.take('x')
      await stage.outlive(ada)
      assert.equal(await ada.release(held), 'not-held')
      await ada.abandon(held)
      await ada.abandon(request('x'))
      if (ada.session.setData) assert.equal(await ada.session.setData(held, 'late', call()), 'not-held')
      await ada.close()
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C235',
    title: 'G3 T64 a grant counts from when the engine last prolonged it, and for the TTL of its session',
    async play(stage) {
      const ada = await stage.actor()
      await stage.passTime(ada.session.ttlMs / 3)
      const held = await ada.take('x')
      const prolongedMs = await prolongedAtMs(stage, held)
      counts('a grant', held, { notAfterMs: prolongedMs, ttlMs: ada.session.ttlMs })
      const sentMs = stage.clock.monotonicMs()
      const kept = await ada.keepAlive({ held: [held] })
      const keptMs = stage.clock.monotonicMs()
      assert(kept.kind === 'alive')
      counts('a keep-alive', kept, { notBeforeMs: sentMs, notAfterMs: keptMs, ttlMs: ada.session.ttlMs })
      await stage.passTime(ada.session.ttlMs / 3)
      const later = await ada.take('y')
      const notAfterMs = await prolongedAtMs(stage, later)
      counts('a later grant', later, { notAfterMs, ttlMs: ada.session.ttlMs })
    },
  },
  {
    rule: 'C236',
    title: 'G3 T64 an attached session counts from before it was attached, or says that it does not know',
    needs: ['attach'],
    async play(stage) {
      const ada = await stage.actor()
      const notAfterMs = stage.clock.monotonicMs() + stage.world.resolutionMs
      await stage.passTime(ada.session.ttlMs / 2)
      const heir = await stage.attach(ada)
      assert(heir !== null)
      const { since, ttlMs } = heir.session
      if (since !== null)
        counts('an attached session', { since, ttlMs }, { notAfterMs, ttlMs: ada.session.ttlMs })
    },
  },
  {
    rule: 'C237',
    title: 'G3 a session that asks for a TTL that the engine has is granted that TTL',
    async play(stage) {
      const { min, step } = (await stage.client()).info.ttlMs
      for (const asked of [stage.ttlMs, stage.ttlMs * 4]) {
        const ttlMs = Math.max(min, Math.ceil(asked / step) * step)
        const { session } = await stage.actor({ ttlMs })
        assert.equal(session.ttlMs, ttlMs)
      }
    },
  },
  {
    rule: 'C238',
    title: 'G3 a try on a busy name in a dead session says that the session is gone',
    async play(stage) {
      const [bob, ada] = await stage.mortalAndOne()
      await ada.take('x')
      await stage.outlive(bob)
      assert.equal((await bob.try('x')).kind, 'session-gone')
      assert.equal((await bob.try('free')).kind, 'session-gone')
    },
  },
])

interface Counted {
  readonly since: { readonly monotonicMs: number }
  readonly ttlMs: number
}

/**
 * When the engine says that it last prolonged the claim: with the last keep-alive where claims ride on their session, with the
 * grant where each has a time of its own.
 */
async function prolongedAtMs(stage: Stage, { name, ttlMs }: Grant): Promise<number> {
  const [holder] = (await stage.inspect(name))?.holders ?? []
  assert(holder !== undefined)
  return stage.clock.monotonicMs() - ttlMs + holder.expiresInMs + stage.world.resolutionMs
}

function counts(
  what: string,
  { since, ttlMs }: Counted,
  expected: { readonly notBeforeMs?: number; readonly notAfterMs: number; readonly ttlMs: number },
): void {
  const { notBeforeMs = Number.NEGATIVE_INFINITY, notAfterMs } = expected
  const { monotonicMs } = since
  assert(monotonicMs <= notAfterMs, `${what} counts from ${monotonicMs} ms, at most ${notAfterMs} ms is true`)
  assert(
    monotonicMs >= notBeforeMs,
    `${what} counts from ${monotonicMs} ms, but was sent at ${notBeforeMs} ms`,
  )
  assert.equal(
    ttlMs,
    expected.ttlMs,
    `${what} has a TTL of ${ttlMs} ms, its session one of ${expected.ttlMs} ms`,
  )
}
