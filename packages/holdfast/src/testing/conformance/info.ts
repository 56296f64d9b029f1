/** The backend's `info` must fit what it does (G12). */
import assert from 'node:assert/strict'
import { withEpoch } from '../../base/fence.ts'
import { expectMs, tokenOf, topic } from './toolbox.ts'

export const infoCases = topic('what it says about itself', [
  {
    rule: 'C1',
    title: 'G12 every capability that is declared has its method, and no other has',
    async play(stage) {
      const { backend, session } = await stage.actor()
      const { info } = backend
      assert.equal(session.enqueue !== undefined, info.waiting === 'queue', 'enqueue')
      assert.equal(session.setData !== undefined, info.data, 'setData')
      assert(info.modes.includes('exclusive'), 'every backend can lock')
    },
  },
  {
    rule: 'C2',
    title: 'its timings fit together',
    async play(stage) {
      const { info } = await stage.client()
      const { min, max, step } = info.ttlMs
      assert(min > 0 && step > 0, `a TTL of at least ${min} ms, in steps of ${step} ms`)
      expectMs("the world's TTL", stage.ttlMs, { min, max })
      for (const ttlMs of [min, stage.ttlMs, 15_000]) {
        expectMs(`expirySlackMs(${ttlMs})`, info.expirySlackMs(ttlMs), { min: 0 })
        const driftMs = info.driftMs(ttlMs)
        assert(driftMs > 0, `driftMs(${ttlMs}) is ${driftMs} ms, but no two clocks agree`)
        // A holder must be able to renew before it stops believing.
        if (ttlMs >= 1_000) expectMs(`driftMs(${ttlMs})`, driftMs, { max: ttlMs / 3 })
      }
    },
  },
  {
    rule: 'C3',
    title: 'it says in sentences what it assumes and what confirms a prolongation',
    async play(stage) {
      const { info } = await stage.client()
      assert(info.assumptions.length > 0, 'there is no engine without assumptions')
      for (const sentence of [...info.assumptions, info.confirmed])
        assert(sentence.trim().length > 10, sentence)
    },
  },
  {
    rule: 'C4',
    title: 'two clients of one namespace name the same issuer, and clients of two namespaces do not',
    touches: 'client',
    async play(stage) {
      const [one, other, apart] = [
        await stage.client(),
        await stage.client(),
        await stage.client({ namespace: 'apart' }),
      ]
      assert.equal(one.info.issuer, other.info.issuer)
      assert.notEqual(one.info.issuer, apart.info.issuer)
      assert(apart.info.namespace.endsWith('apart'))
    },
  },
  {
    rule: 'C5',
    title: 'G2 a token leaves room for the epoch, which a client reports and does not mix in',
    touches: 'client',
    needs: ['fencing'],
    async play(stage) {
      const backend = await stage.client({ issuer: 'the bank', epoch: 7 })
      assert.equal(backend.info.issuer, 'the bank')
      assert.equal(backend.info.epoch, 7)
      const before = tokenOf(await (await stage.actor()).take('x'))
      const raw = tokenOf(await (await stage.actor({ on: backend })).take('y'))
      assert(raw > before && raw < 2n ** 52n, "the engine's own number")
      assert(withEpoch(7, raw) > withEpoch(6, 2n ** 52n - 1n))
    },
  },
])
