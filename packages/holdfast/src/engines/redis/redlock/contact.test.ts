/** The first contact with the nodes, and connections that are lost: what is waited for, for how long, and what is said. */
import assert from 'node:assert/strict'
import { redisCall, wanted } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { afterAll, afterEach, beforeAll, describe, onTestFinished, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { forgetfulLibraries } from '../../../../test/redis/clients.ts'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import {
  call,
  eventually,
  hold,
  nodeTimeoutMs,
  RedlockStage,
  take,
  ttlMs,
  watch,
} from '../../../../test/redlock/stage.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createLocker } from '../../../locker/locker.ts'
import { openLocker } from '../../../open.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import type { RedisClient } from '../client/index.ts'
import { type RedlockOptions, redlock } from './index.ts'

const connectTimeoutMs = 2_000

interface Form {
  readonly name: string
  open(port: number): { readonly client: RedisClient; close(): void }
}

/** Clients as users make them: none is connected yet, and their errors have no listener. */
const forms: readonly Form[] = [
  ioredis('ioredis', {}),
  ioredis('ioredis that connects when it is used', { lazyConnect: true }),
  ioredis('ioredis without an offline queue', { enableOfflineQueue: false }),
  {
    name: 'node-redis',
    open(port) {
      const client = createClient({ url: `redis://127.0.0.1:${port}` })
      client.connect().catch(() => {})
      return { client, close: () => client.destroy() }
    },
  },
]

function ioredis(name: string, options: object): Form {
  return {
    name,
    open(port) {
      const client = new Redis({ port, ...options })
      return { client, close: () => client.disconnect() }
    },
  }
}

const [plain] = forms

describe.runIf(wanted('redis'))('redlock: contact', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes()
  })
  afterEach(() => nodes.endClients())
  afterAll(() => nodes?.stop())

  function backendOn(ports: readonly number[], form = plain, options: Omit<RedlockOptions, 'clients'> = {}) {
    assert(form !== undefined)
    const opened = ports.map((port) => form.open(port))
    const backend = redlock({ clients: opened.map(({ client }) => client), ...options })
    onTestFinished(async () => {
      await backend[Symbol.asyncDispose]()
      for (const { close } of opened) close()
    })
    return backend
  }

  const proxyPorts = () => nodes.proxies.map(({ port }) => port)
  const sessionOf = (backend: ReturnType<typeof redlock>) =>
    backend.openSession({ id: newSessionId(), ttlMs, holder: 'ada' }, call()).then(namingGrants)

  for (const form of forms)
    test(`the time-out of a node starts when its client is connected, however long that takes: ${form.name}`, async () => {
      const { namespace, clock } = new RedlockStage(nodes)
      for (const proxy of nodes.proxies) proxy.hold('down')
      const opening = sessionOf(backendOn(proxyPorts(), form, { namespace, clock }))
      const seen = watch(opening)
      await eventually('they are connecting', () => nodes.proxies.every(({ connections }) => connections > 0))
      await clock.advance(connectTimeoutMs - 1)
      assert.equal(seen.state, 'pending')
      for (const proxy of nodes.proxies) proxy.heal()
      await hold(await opening, 'x')
    })

  test('nobody waits for nodes that swallow connections for longer than the limit, and for that only once', async () => {
    const { namespace, clock } = new RedlockStage(nodes)
    for (const proxy of nodes.proxies) proxy.hold('down')
    const backend = backendOn(proxyPorts(), plain, { namespace, clock })
    const opening = sessionOf(backend)
    const seen = watch(opening)
    await clock.advance(connectTimeoutMs - 1)
    assert.equal(seen.state, 'pending')
    await clock.advance(1)
    const isRefused = (error: unknown) => {
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
      assert.match(error.message, /node 5 of 5 \(localhost:\d+\): it has not connected within 2000 ms/)
      assert.doesNotMatch(error.message, /nodeTimeoutMs/)
      assert.equal(error.outcome, 'not-applied')
      return true
    }
    await assert.rejects(opening, isRefused)
    await assert.rejects(sessionOf(backend), isRefused)
    for (const proxy of nodes.proxies) proxy.heal()
    await eventually('they are asked when they are connected', () =>
      sessionOf(backend).then(
        () => true,
        () => false,
      ),
    )
  })

  test('when a majority is connected, the others have one time-out left, and are not awaited again', async () => {
    const { namespace, clock } = new RedlockStage(nodes)
    for (const proxy of nodes.proxies.slice(0, 2)) proxy.hold('down')
    const backend = backendOn(proxyPorts(), plain, { namespace, clock })
    const opening = sessionOf(backend)
    const seen = watch(opening)
    await eventually('the others know the session', async () => {
      const sessions = await nodes.call('KEYS', `holdfast:${namespace}:session:*`)
      return sessions.slice(2).every((keys) => (keys as string[]).length === 1)
    })
    await clock.advance(nodeTimeoutMs - 1)
    assert.equal(seen.state, 'pending')
    await clock.advance(1)
    const session = await opening
    // The clock stands still.
    await hold(session, 'x')
    await sessionOf(backend)
    for (const proxy of nodes.proxies) proxy.heal()
    await eventually('they vote when they are connected', async () => {
      const granted = await take(session, newSessionId())
      assert.equal(granted.kind, 'granted')
      const locks = await nodes.call('KEYS', `holdfast:${namespace}:{*`)
      return locks.every((keys) => (keys as string[]).length > 0)
    })
  })

  for (const form of forms)
    test(`a refused connection costs no time, and the reason is told: ${form.name}`, async () => {
      const { namespace, clock } = new RedlockStage(nodes)
      const ports = nodes.servers.map(({ port }, index) => (index < 3 ? index + 1 : port))
      const backend = backendOn(ports, form, { namespace, clock })
      // The clock stands still.
      await assert.rejects(sessionOf(backend), (error) => {
        assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
        assert.match(error.message, /done on 2 of 5 nodes, and 3 are needed/)
        for (const node of [1, 2, 3])
          assert.match(error.message, new RegExp(`node ${node} of 5 .*${node}\\): connect ECONNREFUSED`))
        return true
      })
    })

  test('a connection that is lost is waited for until it is back', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await hold(session, 'warm up')
    await nodes.flush()
    for (const proxy of nodes.proxies) proxy.reset()
    await eventually('the clients have noticed', () =>
      nodes.proxies.every(({ connections }) => connections === 0),
    )
    await hold(session, 'x')
  })

  test('and if it does not come back, for no longer than one time-out', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await hold(session, 'warm up')
    await nodes.flush()
    for (const proxy of nodes.proxies.slice(0, 3)) {
      proxy.hold('down')
      proxy.reset()
    }
    await eventually('the clients connect again', () =>
      nodes.proxies.every(({ connections }) => connections > 0),
    )
    const trying = take(session, 'x')
    const seen = watch(trying)
    await eventually('the others have voted', async () => (await stage.values('x', [3, 4])).every(Boolean))
    await nodes.flush([0, 1, 2])
    await stage.clock.advance(nodeTimeoutMs - 1)
    assert.equal(seen.state, 'pending')
    await stage.clock.advance(1)
    const isRefused = (error: unknown) => {
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
      assert.match(error.message, /voted on 2 of 5 nodes/)
      assert.equal(error.outcome, 'not-applied')
      return true
    }
    await assert.rejects(trying, isRefused)
    await assert.rejects(take(session, 'x'), isRefused)
    assert.deepEqual(await stage.values('x'), [null, null, null, null, null])
  })

  test('a server is given the scripts before it is first asked, so that no question takes two round trips', async () => {
    const failures = async () =>
      Promise.all(
        nodes.servers.map(async (server) => {
          const stats = String(await redisCall(server, 'INFO', 'commandstats'))
          return /cmdstat_eval:|cmdstat_evalsha:.*failed_calls=[1-9]/.test(stats)
        }),
      )
    const stage = new RedlockStage(nodes)
    const backend = await stage.backend()
    for (let round = 0; round < 2; round++) {
      await nodes.call('SCRIPT', 'FLUSH')
      await nodes.call('CONFIG', 'RESETSTAT')
      for (const proxy of nodes.proxies) proxy.reset()
      await nodes.flush()
      const session = await sessionOf(backend)
      const held = await hold(session, `x/${round}`)
      assert.equal((await session.keepAlive({ held: [held], waiting: [] }, call())).kind, 'alive')
      await backend.inspect('x', call())
      assert.equal(await session.release(held, { keepForMs: 0 }, call()), 'released')
      await nodes.flush()
      assert.deepEqual(await failures(), [false, false, false, false, false])
    }
  })

  test('the time-out of a node does not run while it connects and shakes hands', async () => {
    const { namespace } = new RedlockStage(nodes)
    const clock = createFakeClock()
    for (const proxy of nodes.proxies) proxy.hold('down')
    const locker = createLocker(backendOn(proxyPorts(), plain, { namespace, nodeTimeoutMs, clock }))
    onTestFinished(() => locker.close())
    const acquiring = locker.acquire('x')
    const seen = watch(acquiring)
    await eventually('they shake hands', () => nodes.proxies.every(({ connections }) => connections > 0))
    await clock.advance(5 * nodeTimeoutMs)
    assert.equal(seen.state, 'pending')
    for (const proxy of nodes.proxies) proxy.heal()
    const lease = await acquiring
    assert.equal(await lease.release(), 'released')
  })

  test('servers that are far away answer the first acquire of a locker from a URL', async () => {
    for (const proxy of nodes.proxies) proxy.delay(40)
    const { namespace } = new RedlockStage(nodes)
    const hosts = proxyPorts().map((port) => `127.0.0.1:${port}`)
    const locker = await openLocker(`redlock://${hosts}?namespace=${namespace}&nodeTimeoutMs=2000`)
    onTestFinished(() => locker.close())
    const lease = await locker.acquire('x')
    assert.equal(await lease.release(), 'released')
  })

  for (const delayMs of [20, 40]) {
    test(`servers ${2 * delayMs} ms away and a time-out below that: the error says what to raise`, async () => {
      for (const proxy of nodes.proxies) proxy.delay(delayMs)
      const { namespace } = new RedlockStage(nodes)
      const backend = backendOn(proxyPorts(), plain, { namespace, nodeTimeoutMs: delayMs })
      const locker = createLocker(backend)
      onTestFinished(() => locker.close())
      for (let times = 0; times < 2; times++)
        await assert.rejects(locker.acquire('x'), (error) => {
          assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
          assert.match(error.message, new RegExp(`raise nodeTimeoutMs, which is ${delayMs}`))
          return true
        })
    })
  }

  test.each(forgetfulLibraries)(
    'T76 nodes whose client forgets calls at a reset do not owe an answer for ever ($name)',
    async (library) => {
      const stage = new RedlockStage(nodes)
      const session = await stage.session('ada', { library })
      for (const proxy of nodes.proxies) proxy.drop('down')
      const lost = assert.rejects(take(session, 'x'), { code: 'BACKEND_UNAVAILABLE' })
      await eventually('the nodes have answered', () =>
        nodes.proxies.every((proxy) => proxy.swallowedBytes('down') > 0),
      )
      // The acquire, and then what takes it back.
      const seen = watch(lost)
      await eventually('it is given up', async () => {
        await stage.clock.advance(nodeTimeoutMs)
        return seen.state !== 'pending'
      })
      await lost
      for (const proxy of nodes.proxies) proxy.heal()
      await eventually('they are asked again', async () => {
        const result = await take(session, 'y').catch(() => null)
        return result?.kind === 'granted'
      })
    },
  )

  test('openLocker waits for a majority, and says what is the matter when there is none', async () => {
    const [a, b, c] = nodes.servers.map(({ port }) => `127.0.0.1:${port}`)
    await assert.rejects(openLocker(`redlock://${a},127.0.0.1:1,127.0.0.1:2`), (error) => {
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
      assert.match(error.message, /connecting: done on 1 of 3 nodes, and 2 are needed/)
      assert.match(error.message, /node 2 of 3 \(127\.0\.0\.1:1\): connect ECONNREFUSED/)
      return true
    })
    await assert.rejects(openLocker(`redlock://${a},${b},${c}`, { require: 'fenced' }), {
      code: 'UNSUPPORTED',
    })
  })
})
