/** A locker that was opened from a URL ends in bounded time, and leaves nothing behind that keeps the process alive. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { Rig, until } from '../../../test/redis/rig.ts'
import { eventsDuring } from '../../../test/rig.ts'
import { startProgram } from '../../../test/start-program.ts'
import type { Locker } from '../../core/types.ts'

const program = join(import.meta.dirname, '../../../test/redis/closing.ts')

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

    test(`while its connection for WAIT is in its handshake: ${library}`, async () => {
      await using proxy = await startCountingProxy()
      const { use, close } = await start(proxy, library, 'waits')
      proxy.drop('down', ({ label }) => Number(label) > 2)
      use()
      await until('the answer to its handshake is swallowed', () => proxy.swallowedBytes('down') > 0)
      await close()
    })
  }
})

describe.runIf(wanted('redis'))('closing thousands of leases over a slow network', () => {
  const LEASES = 5_000
  /** Of one call: what all of them take over this network is several times that. */
  const callTimeoutMs = 1_000

  async function hold(rig: Rig, { host, port }: FaultyProxy) {
    const locker = await rig.locker(`redis://${host}:${port}`, { locker: { callTimeoutMs } })
    const names = Array.from({ length: LEASES }, (_, index) => `many-${index}`)
    const leases = await Promise.all(names.map((name) => locker.acquire(name)))
    return { locker, leases }
  }

  const held = async (observer: Locker<'unfenced'>) =>
    (await observer.list('many-')).filter(({ holders }) => holders.length > 0).length

  test('takes as long as there is progress, and leaves none', async () => {
    await using server = await startRedis()
    await using proxy = await startProxy(server)
    await using rig = new Rig()
    const observer = await rig.locker(server.url)
    const { locker } = await hold(rig, proxy)
    proxy.slow({ bytes: 2_000, everyMs: 10 }, 'up')
    const startMs = performance.now()
    const events = await eventsDuring('close-failed', () => locker.close())
    assert.deepEqual(events, [])
    assert.equal(await held(observer), 0)
    assert.ok(performance.now() - startMs > callTimeoutMs, 'it would have been too fast to show anything')
  })

  test('G11 says how many are left, and leaves no more than that', async () => {
    await using server = await startRedis()
    await using proxy = await startProxy(server)
    await using rig = new Rig()
    const observer = await rig.locker(server.url)
    const { locker } = await hold(rig, proxy)
    proxy.slow({ bytes: 2_000, everyMs: 10 }, 'up')
    const [event] = await eventsDuring('close-failed', async () => {
      const closing = locker.close()
      await until('a part is released', async () => (await held(observer)) < LEASES)
      proxy.drop('up')
      await closing
    })
    assert.ok(event !== undefined)
    assert.ok(event.left > 0 && event.left < LEASES, String(event.left))
    assert.equal(await held(observer), event.left)
    assert.ok(event.expireWithinMs > 0 && event.expireWithinMs <= 16_000)
  })
})
