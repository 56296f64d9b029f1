/** A locker that was opened from a URL ends in bounded time, and leaves nothing behind that keeps the process alive. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { Rig, until } from '../../../../test/redis/rig.ts'
import { eventsDuring } from '../../../../test/rig.ts'
import { startProgram } from '../../../../test/start-program.ts'
import { callWith } from '../../../base/aborting.ts'
import type { Locker } from '../../../base/types.ts'
import { createLocker } from '../../../locker/locker.ts'
import { replace } from '../../../testing/conformance/wrapping.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'

const program = join(import.meta.dirname, '../../../../test/redis/closing.ts')
const renewing = join(import.meta.dirname, '../../../../test/redis/renewing.ts')

describe.runIf(wanted('redis'))('closing a locker from a URL', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())

  async function start({ host, port }: FaultyProxy, ...given: readonly string[]) {
    const { process, ended, printed } = startProgram(program, `redis://${host}:${port}`, ...given)
    await printed('open')
    const use = () => process.kill('SIGUSR2')
    const close = async () => {
      process.kill('SIGTERM')
      await printed('closed')
      const { code, errors } = await ended
      assert.equal(code, 0, errors)
    }
    return { use, close }
  }

  /** A proxy that knows its connections by their numbers, the first of which is the client's own. */
  async function startCountingProxy() {
    let connections = 0
    return startProxy(server, { label: () => String(++connections) })
  }

  for (const library of ['ioredis', 'redis']) {
    test(`while a server is silent that was connected: ${library}`, async () => {
      await using proxy = await startProxy(server)
      const { use, close } = await start(proxy, library)
      proxy.blackhole()
      use()
      await until('what it asks is swallowed', () => proxy.swallowedBytes('up') > 0)
      await close()
    })

    test(`while it reconnects in vain: ${library}`, async () => {
      await using proxy = await startProxy(server)
      const { use, close } = await start(proxy, library)
      proxy.hold('down')
      proxy.reset()
      use()
      await until('it connects again', () => proxy.connections > 0)
      await close()
    })

    test(`while its connection for messages is in its handshake: ${library}`, async () => {
      await using proxy = await startCountingProxy()
      const { use, close } = await start(proxy, library)
      proxy.drop('down', ({ label }) => Number(label) > 1)
      use()
      await until('the answer to its handshake is swallowed', () => proxy.swallowedBytes('down') > 0)
      await close()
    })

    test(`T85 a second connection that is in its handshake does not keep the process alive: ${library}`, async () => {
      let connections = 0
      await using proxy = await startProxy(server, { label: () => String(++connections) })
      const { process, printed } = startProgram(renewing, `redis://${proxy.host}:${proxy.port}`, library)
      await printed('open')
      const before = connections
      proxy.drop('down')
      process.kill('SIGUSR2')
      // The answers to the renewal itself are shorter than that to a handshake.
      const isInHandshake = () => connections > before && proxy.swallowedBytes('down') > 100
      await until('the answer to its handshake is swallowed', isInHandshake)
      process.kill('SIGTERM')
      await printed('sockets 0')
    })
  }
})

describe.runIf(wanted('redis'))('closing thousands of leases', () => {
  const LEASES = 5_000
  const ttlMs = 120_000
  /** Of one call, without progress. It passes only when the test says so. */
  const callTimeoutMs = 1_000

  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())

  /** A locker that has them all, and calls `onProgress` before core is told. The leases are kept: one that is collected is released. */
  async function holdAll(rig: Rig, url: string, onProgress: (left: number) => Promise<void> | void) {
    const clock = createFakeClock()
    let progress = Promise.resolve()
    const backend = replace(await rig.backend(url, { backend: { clock } }), {
      session: (inner) => ({
        async close(call) {
          const noted = (left: number) => {
            progress = progress.then(() => onProgress(left)).then(() => call.onProgress?.(left))
          }
          await inner.close(callWith(call.signal, { onProgress: noted }))
          await progress
        },
      }),
    })
    const locker = createLocker(backend, { ttlMs, callTimeoutMs })
    const names = Array.from({ length: LEASES }, (_, index) => `many-${index}`)
    const leases = await Promise.all(names.map((name) => locker.acquire(name)))
    return { clock, locker, leases }
  }

  const countHeld = async (observer: Locker<'unfenced'>) =>
    (await observer.list('many-')).filter(({ holders }) => holders.length > 0).length

  test('takes as long as there is progress, and leaves none', async () => {
    await using rig = new Rig()
    const observer = await rig.locker(server.url)
    const held = await holdAll(rig, server.url, () => held.clock.advance(callTimeoutMs - 1))
    const startMs = held.clock.monotonicMs()
    const events = await eventsDuring('close-failed', () => held.locker.close())
    assert.deepEqual(events, [])
    assert.equal(await countHeld(observer), 0)
    assert.ok(held.clock.monotonicMs() - startMs > callTimeoutMs)
    assert.equal(held.leases.length, LEASES)
  })

  test('G11 says how many are left, and leaves no more than that', async () => {
    await using proxy = await startProxy(server)
    await using rig = new Rig()
    const observer = await rig.locker(server.url)
    let left = LEASES
    const { clock, locker, leases } = await holdAll(
      rig,
      `redis://${proxy.host}:${proxy.port}`,
      (stillLeft) => {
        left = stillLeft
        proxy.drop('up')
      },
    )
    // So that the first part is answered long before the last has left.
    proxy.slow({ bytes: 2_000, everyMs: 10 }, 'up')
    const [event] = await eventsDuring('close-failed', async () => {
      const closing = locker.close()
      await until('a part is released', () => left < LEASES)
      // Requests that have passed the proxy are done when the observer has its answer; they are then answered.
      const held = await countHeld(observer)
      await until('what was done is answered', () => left === held)
      await clock.advance(callTimeoutMs)
      await closing
    })
    assert.ok(event !== undefined)
    assert.ok(event.left > 0 && event.left < leases.length, String(event.left))
    assert.equal(await countHeld(observer), event.left)
    assert.ok(event.expireWithinMs > 0 && event.expireWithinMs <= ttlMs + 1_000)
  })
})
