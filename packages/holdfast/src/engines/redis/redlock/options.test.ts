/** Options that are refused before a server is asked, and those of a URL. */
import assert from 'node:assert/strict'
import { redisCall, wanted } from 'holdfast-lab/servers'
import { Cluster, Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, describe, onTestFinished, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import { call, hold, RedlockStage, take } from '../../../../test/redlock/stage.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import { createLocker } from '../../../locker/locker.ts'
import { openLocker } from '../../../open.ts'
import { nodesFromUrl } from './from-url.ts'
import { type RedlockOptions, redlock } from './index.ts'

/** Clients that never connect. */
function clients(count: number): Redis[] {
  return Array.from({ length: count }, () => new Redis({ lazyConnect: true }))
}

function refused(options: unknown, rule: RegExp): void {
  assert.throws(
    () => redlock(options as RedlockOptions),
    (error) => {
      assert(isHoldfastError(error, 'INVALID_ARGUMENT'), String(error))
      assert.match(error.message, rule)
      return true
    },
  )
}

describe('redlock: options', () => {
  test('T55 a quorum that is no majority, or more than there are, is refused', () => {
    for (const quorum of [0, 1, 2, 6, 2.5, Number.NaN, '3'])
      refused({ clients: clients(5), quorum }, /^quorum must be/)
    refused({ clients: clients(4), quorum: 2 }, /from 3 to 4 of 4 nodes.*two groups that are no majority/)
    for (const quorum of [3, 4, 5]) {
      const { info } = redlock({ clients: clients(5), quorum })
      assert.match(info.confirmed, new RegExp(`^A keep-alive that ${quorum} of 5 servers`))
    }
  })

  test('fewer than three nodes are refused unless they are asked for', () => {
    for (const count of [1, 2]) {
      refused({ clients: clients(count) }, /must be at least 3.*allowFewNodes: true/)
      redlock({ clients: clients(count), allowFewNodes: true })
    }
    refused({ clients: [] }, /must be a list/)
    refused({}, /must be a list/)
    refused({ clients: clients(3), allowFewNodes: 'yes' }, /allowFewNodes must be true or false/)
    redlock({ clients: clients(3) })
  })

  test('the same client twice, a Cluster, and what is no client are refused', () => {
    const [one, two] = clients(2)
    refused({ clients: [one, two, one] }, /same client twice/)
    const cluster = new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true })
    refused({ clients: [...clients(2), cluster] }, /clients\[2\] must not be a Redis Cluster/)
    refused(
      { clients: [...clients(2), { host: 'a' }] },
      /^clients\[2\] must be a Redis or Cluster of ioredis/,
    )
    refused({ clients: ['redis://a', 'redis://b', 'redis://c'] }, /^clients\[0\] must be/)
  })

  test('timings that do not fit are refused, and those that do stand in info', () => {
    refused({ clients: clients(3), nodeTimeoutMs: 0 }, /nodeTimeoutMs must be at least 1/)
    refused({ clients: clients(3), nodeTimeoutMs: 1_000, maxTtlMs: 1_000 }, /maxTtlMs must be at least 2000/)
    refused({ clients: clients(3), persistence: 'disk' }, /persistence must be one of/)
    refused({ clients: clients(3), nodeTimeOutMs: 5 }, /no option "nodeTimeOutMs"/)
    refused(undefined, /must be an object with clients/)
    const { info } = redlock({ clients: clients(3), maxTtlMs: 30_000, namespace: 'shop' })
    assert.deepEqual(info.ttlMs, { min: 100, max: 30_000, step: 1 })
    assert.equal(info.fencing, 'unfenced')
    assert.deepEqual(info.modes, ['exclusive'])
    assert.equal(info.issuer, 'redlock/shop')
    assert.equal(redlock({ clients: clients(3) }).info.ttlMs.max, 60_000)
  })

  test('a URL names all nodes, with credentials and database for each of them', () => {
    assert.deepEqual(
      nodesFromUrl('//user:secret@a:1,b,c:3/2').map(({ scheme, location }) => scheme + location),
      ['redis//user:secret@a:1/2', 'redis//user:secret@b/2', 'redis//user:secret@c:3/2'],
    )
    assert.equal(nodesFromUrl('//a,b,c', true)[0]?.scheme, 'rediss')
    for (const location of ['', '//', 'a,b,c', '//a,,c', '//a,b,c/db', '//user:secret@/0'])
      assert.throws(
        () => nodesFromUrl(location),
        (error: Error) => !error.message.includes('secret'),
      )
  })

  test('openLocker refuses what a URL must not say', async () => {
    await assert.rejects(openLocker('redlock://127.0.0.1:1,127.0.0.1:2'), { code: 'INVALID_ARGUMENT' })
    await assert.rejects(openLocker('redlock://a,b,c?nodeTimeout=5'), /parameter "nodeTimeout"/)
    await assert.rejects(openLocker('redlock://a,b,c?quorum=most'), /quorum must be a number/)
    await assert.rejects(openLocker('redlock://a,b,c?persistence=disk'), /persistence must be one of/)
    await assert.rejects(openLocker('redlock://a,b,c?allowFewNodes=1'), /must be one of true, false/)
    for (const parameter of ['issuer=a', 'epoch=1'])
      await assert.rejects(openLocker(`redlock://a,b,c?${parameter}`), /redlock issues no tokens/)
  })
})

describe.runIf(wanted('redis'))('redlock: options on real nodes', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes()
  })
  afterEach(() => nodes.endClients())
  afterAll(() => nodes?.stop())

  test('openLocker works although a minority is down from the start', async () => {
    const [a, b, c] = nodes.servers
    const url = `redlock://127.0.0.1:${a?.port},127.0.0.1:1,127.0.0.1:${b?.port},127.0.0.1:2,127.0.0.1:${c?.port}`
    const locker = await openLocker(`${url}?namespace=from-url&nodeTimeoutMs=3000&maxTtlMs=60000`)
    onTestFinished(() => locker.close())
    assert.equal(locker.info.name, 'redlock')
    await locker.withLease('x', async () => {
      assert.equal(await locker.tryAcquire('x'), null)
    })
  })

  test('a longest TTL below the default one is the default then', async () => {
    const backend = await nodes.backend({ namespace: 'short', maxTtlMs: 2_500 })
    await using locker = createLocker(backend)
    const lease = await locker.acquire('x')
    assert(lease.remainingMs <= 2_500)
    assert.throws(() => createLocker(backend, { ttlMs: 2_501 }), { code: 'INVALID_ARGUMENT' })
  })

  test('T52 the client’s own database and key prefix are kept to', async () => {
    const opened = nodes.servers.map(({ port }) => new Redis({ port, db: 3, keyPrefix: 'app:' }))
    onTestFinished(() => {
      for (const client of opened) client.disconnect()
    })
    const namespace = 'prefixed'
    const backend = redlock({ clients: opened, namespace, nodeTimeoutMs: 5_000 })
    const session = await backend.openSession(
      { id: 'prefixed-session', ttlMs: 10_000, holder: 'ada' },
      call(),
    )
    await hold(session, 'x')
    assert.deepEqual(
      (await listAll(backend, '', call())).map(({ name }) => name),
      ['x'],
    )
    assert.deepEqual((await nodes.call('KEYS', `*${namespace}*`)).flat(), [], 'database 0 is untouched')
    await session.close(call())
    assert.deepEqual(await listAll(backend, '', call()), [])
    await backend[Symbol.asyncDispose]()
  })

  test('a user who may not ask INFO is told what is missing', async () => {
    const stage = new RedlockStage(nodes)
    await nodes.call('ACL', 'SETUSER', 'limited', 'on', '>pass', '~*', '+@all', '-info')
    const opened = nodes.servers.map(
      ({ port }) => new Redis({ port, username: 'limited', password: 'pass', enableReadyCheck: false }),
    )
    onTestFinished(() => {
      for (const client of opened) client.disconnect()
    })
    const backend = redlock({ clients: opened, namespace: stage.namespace, nodeTimeoutMs: 5_000 })
    const opening = backend
      .openSession({ id: 'limited', ttlMs: 10_000, holder: 'ada' }, call())
      .then(namingGrants)
    await assert.rejects(opening, (error) => {
      assert(isHoldfastError(error, 'UNSUPPORTED'), String(error))
      assert.match(error.message, /does not let this user ask INFO/)
      return true
    })
  })

  test.each(['set', 'hmget'])(
    'G12 a user to whom %s is denied inside scripts is told what to grant, and nothing is waited for',
    async (command) => {
      const stage = new RedlockStage(nodes)
      await nodes.call('ACL', 'SETUSER', 'poor', 'reset', 'on', '>pass', '~*', '&*', '+@all', `-${command}`)
      const opened = nodes.servers.map(
        ({ port }) => new Redis({ port, username: 'poor', password: 'pass', enableReadyCheck: false }),
      )
      onTestFinished(() => {
        for (const client of opened) client.disconnect()
      })
      const backend = redlock({ clients: opened, namespace: stage.namespace, nodeTimeoutMs: 5_000 })
      await using locker = createLocker(backend)
      await assert.rejects(locker.acquire('x', { waitMs: 60_000 }), (error) => {
        assert(isHoldfastError(error, 'UNSUPPORTED'), String(error))
        assert.match(error.message, /ACL SETUSER <user> \+/)
        return true
      })
    },
  )

  test('a replica has no vote, and the refusal says why', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const [first] = nodes.servers
    assert(first !== undefined)
    for (const index of [1, 2, 3]) await redisCall(stage.server(index), 'REPLICAOF', first.host, first.port)
    try {
      await assert.rejects(take(session, 'x'), (error) => {
        assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
        assert.match(error.message, /on 2 of 5 nodes.*node 2 of 5.*READONLY/)
        assert.equal(error.outcome, 'not-applied')
        return true
      })
    } finally {
      for (const index of [1, 2, 3]) await redisCall(stage.server(index), 'REPLICAOF', 'NO', 'ONE')
    }
  })
})
