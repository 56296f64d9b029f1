import assert from 'node:assert/strict'
import * as crypto from 'node:crypto'
import { inspect } from 'node:util'
import { describe, test, vi } from 'vitest'
import { createRig, eventsDuring, type plainCall } from '../../test/rig.ts'
import type { AcquireRequest, Backend } from '../spi.ts'
import { newAttempt, publicIdOf, systemRandom } from './ids.ts'

const MANY = 50_000

describe('the system source of randomness', () => {
  test('T44 an id is 128 bits as 22 characters of base64url', () => {
    const id = systemRandom.id()
    assert.match(id, /^[A-Za-z0-9_-]{22}$/)
    assert.equal(Buffer.from(id, 'base64url').length, 16)
  })

  test('T44 ids do not repeat, also across refills of the pool', () => {
    const ids = Array.from({ length: MANY }, () => systemRandom.id())
    assert.equal(new Set(ids).size, MANY)
  })

  test('T44 no two ids share a run of their bytes: the pool is never handed out twice or in overlaps', () => {
    const seen = new Set<string>()
    for (let count = 0; count < 5_000; count++) {
      // Draws of another length shift what comes after them.
      if (count % 3 === 0) systemRandom.fraction()
      const id = Buffer.from(systemRandom.id(), 'base64url')
      for (let at = 0; at + 8 <= id.length; at++) {
        const run = id.toString('hex', at, at + 8)
        assert.ok(!seen.has(run), 'eight equal bytes in a row')
        seen.add(run)
      }
    }
  })

  test('T44 every bit of an id is as often 1 as 0', () => {
    const ones = new Array<number>(128).fill(0)
    for (let count = 0; count < MANY; count++) {
      const bytes = Buffer.from(systemRandom.id(), 'base64url')
      for (let bit = 0; bit < 128; bit++)
        ones[bit] = (ones[bit] ?? 0) + (((bytes[bit >> 3] ?? 0) >> (bit & 7)) & 1)
    }
    // Eight standard deviations: a fair bit fails this once in 10^15 runs.
    const margin = 8 * Math.sqrt(MANY / 4)
    for (const [bit, count] of ones.entries())
      assert.ok(Math.abs(count - MANY / 2) < margin, `bit ${bit} was 1 in ${count} of ${MANY}`)
  })

  test('fractions fill [0, 1) evenly', () => {
    const buckets = new Array<number>(10).fill(0)
    for (let count = 0; count < MANY; count++) {
      const fraction = systemRandom.fraction()
      assert.ok(fraction >= 0 && fraction < 1)
      const bucket = Math.floor(fraction * 10)
      buckets[bucket] = (buckets[bucket] ?? 0) + 1
    }
    const margin = 8 * Math.sqrt(MANY * 0.09)
    for (const count of buckets) assert.ok(Math.abs(count - MANY / 10) < margin, buckets.join(' '))
  })

  test('T44 it is pooled: hundreds of ids cost one call to the system', async () => {
    vi.resetModules()
    const fill = vi.fn(crypto.randomFillSync)
    vi.doMock('node:crypto', () => ({ ...crypto, randomFillSync: fill }))
    const { systemRandom: fresh } = await import('./ids.ts')
    vi.doUnmock('node:crypto')
    assert.equal(fill.mock.calls.length, 0, 'nothing is drawn before it is needed')
    const ids = new Set(Array.from({ length: 512 }, () => fresh.id()))
    assert.equal(fill.mock.calls.length, 1)
    ids.add(fresh.id())
    assert.equal(fill.mock.calls.length, 2)
    assert.equal(ids.size, 513)
  })
})

describe('an attempt', () => {
  test('T44 has a public half and a secret half of 128 bits each', () => {
    const attempt = newAttempt(systemRandom)
    assert.match(attempt, /^[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{22}$/)
    const [shown, secret] = attempt.split('.')
    assert.equal(publicIdOf(attempt), shown)
    assert.notEqual(shown, secret)
  })

  test('T45 every acquisition is an attempt of its own, also of the same locker and name', async () => {
    const { rig, secrets } = watchSecrets()
    const locker = rig.locker({ wrap: secrets.wrap })
    for (let round = 0; round < 3; round++) await (await locker.acquire('n')).release()
    assert.equal(secrets.attempts.size, 3)
  })

  test('T44 the secret half is in no event, error, lease, listing or watch', async () => {
    const { rig, secrets } = watchSecrets()
    const locker = rig.locker({ wrap: secrets.wrap })
    const shown: unknown[] = [locker]
    const collect = async (body: () => Promise<unknown>) =>
      void shown.push(await body().catch((error) => error))
    const kinds = ['waiting', 'acquired', 'busy', 'timed-out', 'released', 'lost', 'renewed'] as const
    const listen = kinds.reduce<() => Promise<unknown>>(
      (body, kind) => async () => void shown.push(await eventsDuring(kind, body)),
      async () => {
        const lease = await locker.acquire('n')
        shown.push(lease, lease.fence, { ...lease }, lease.id)
        const timedOut = collect(() => locker.acquire('n', { waitMs: 10 }))
        await collect(() => locker.tryAcquire('n'))
        await collect(() => locker.inspect('n'))
        await collect(() => locker.list())
        await rig.clock.advance(6_000)
        await timedOut
        await collect(() => lease.release())
        await collect(() => lease.setData('x'))
        const lost = await locker.acquire('n')
        rig.clock.block(60_000)
        shown.push(lost.state, lost.signal.reason)
      },
    )
    await listen()
    const text = inspect(shown, { depth: 20, showHidden: true, maxArrayLength: null, maxStringLength: null })
    assert.ok(secrets.attempts.size >= 4)
    for (const secret of secrets.all()) assert.ok(!text.includes(secret), 'a secret was shown')
    const [first = ''] = secrets.attempts
    assert.ok(text.includes(publicIdOf(first)), 'the public half is there to be found')
  })
})

/** A rig whose backend notes every attempt and session id that passes through it. */
function watchSecrets() {
  const attempts = new Set<string>()
  const sessions = new Set<string>()
  const wrap = (backend: Backend<'fenced'>): Backend<'fenced'> => {
    const { openSession } = backend
    backend.openSession = async (request, call) => {
      sessions.add(request.id)
      const session = await openSession.call(backend, request, call)
      for (const method of ['tryAcquire', 'enqueue'] as const) {
        const original = session[method] as (request: AcquireRequest, call: typeof plainCall) => never
        session[method] = (asked: AcquireRequest, itsCall: typeof plainCall) => {
          attempts.add(asked.attempt)
          return original.call(session, asked, itsCall)
        }
      }
      return session
    }
    return backend
  }
  const all = () => [
    ...sessions,
    ...[...attempts].map((attempt) => attempt.slice(publicIdOf(attempt).length + 1)),
  ]
  return { rig: createRig(), secrets: { attempts, wrap, all } }
}
