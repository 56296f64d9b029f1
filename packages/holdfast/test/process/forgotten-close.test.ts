/** A program that forgets `close()` ends by itself, and not while one of its calls is pending. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import {
  type Cluster,
  type ConsulCluster,
  type EtcdCluster,
  redisCall,
  type Server,
  startConsul,
  startEtcd,
  startPostgres,
  startRedis,
  startRedisCluster,
  startRedisNodes,
  startZooKeeper,
  wanted,
  type ZooKeeperEnsemble,
} from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { openLocker } from '../../src/open.ts'
import { until } from '../redis/rig.ts'
import { startProgram } from '../start-program.ts'

/** A hang is a failure; a slow machine is none. */
const LIMIT_MS = 120_000

const runChild = (url: string, library: string, name = 'x') =>
  startProgram(join(import.meta.dirname, 'children', 'forgotten.ts'), url, library, name)

/** Without the warning that a node of Redlock connected late: a slow machine is no failure. */
const withoutLateNodes = (errors: string) => (errors.includes('HOLDFAST_REDLOCK_NO_VOTE') ? '' : errors)

function endsByItself(url: () => string, libraries: readonly string[]): void {
  test.each(libraries)(
    'a forgotten close does not keep the process alive %s',
    async (library) => {
      const { code, lines, errors } = await runChild(url(), library).ended
      const ended = { code, lines, errors: withoutLateNodes(errors) }
      assert.deepEqual(ended, { code: 0, lines: ['opened', 'released'], errors: '' })
    },
    LIMIT_MS,
  )
}

function waitsWhilePending(url: () => string, libraries: readonly string[]): void {
  test.each(libraries)(
    'a pending acquire does keep the process alive, until it is answered %s',
    async (library) => {
      const name = `taken ${library}`
      await using locker = await openLocker(url())
      const lease = await locker.acquire(name)
      const child = runChild(url(), library, name)
      await child.printed('opened')
      // Long enough for a process with nothing to wait for to end.
      await pause(500)
      assert.equal(child.process.exitCode, null, 'it has ended while its call was pending')
      await lease.release()
      const { code, lines, errors } = await child.ended
      const ended = { code, lines, errors: withoutLateNodes(errors) }
      assert.deepEqual(ended, { code: 0, lines: ['opened', 'released'], errors: '' })
    },
    LIMIT_MS,
  )
}

describe('without a server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-forgotten-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  describe('memory', () => endsByItself(() => 'memory:', ['']))
  describe('sqlite', () => {
    const url = () => `sqlite:${join(folder, 'locks.db')}`
    endsByItself(url, [''])
    waitsWhilePending(url, [''])
  })
})

describe.runIf(wanted('redis'))('redis', () => {
  const libraries = ['ioredis 6', 'ioredis 5', 'node-redis 6', 'node-redis 5']
  describe('one server', () => {
    let server: Server
    beforeAll(async () => {
      server = await startRedis()
    })
    afterAll(() => server?.stop())
    endsByItself(() => server.url, libraries)
    waitsWhilePending(() => server.url, ['ioredis 6', 'node-redis 6'])

    test.each(libraries)(
      'nor does the connection that came after a lost one %s',
      async (library) => {
        const name = `reconnecting ${library}`
        const locker = await openLocker(server.url)
        const lease = await locker.acquire(name)
        const child = runChild(server.url, library, name)
        await child.printed('opened')
        const isWaiting = async () => (await locker.inspect(name))?.waiters.length === 1
        await until('the child waits', isWaiting)
        await redisCall(server, 'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
        await until('the locker is back', () => isWaiting().catch(() => false))
        await lease.release()
        await locker.close()
        const { code, lines, errors } = await child.ended
        const ended = { code, lines, errors: withoutLateNodes(errors) }
        assert.deepEqual(ended, { code: 0, lines: ['opened', 'released'], errors: '' })
      },
      LIMIT_MS,
    )
  })

  describe('a Cluster', () => {
    let cluster: Cluster
    const url = () => `redis://${cluster.members.map(({ host, port }) => `${host}:${port}`).join(',')}`
    beforeAll(async () => {
      cluster = await startRedisCluster()
    })
    afterAll(() => cluster?.stop())
    endsByItself(url, libraries)
    waitsWhilePending(url, ['ioredis 6', 'node-redis 6'])
  })

  describe('redlock', () => {
    let nodes: Cluster
    const url = () =>
      `redlock://${nodes.members.map(({ host, port }) => `${host}:${port}`).join(',')}?persistence=every-write`
    beforeAll(async () => {
      nodes = await startRedisNodes(3)
    })
    afterAll(() => nodes?.stop())
    endsByItself(url, libraries)
    waitsWhilePending(url, ['ioredis 6', 'node-redis 6'])
  })
})

describe.runIf(wanted('postgres'))('postgres', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  }, LIMIT_MS)
  afterAll(() => server?.stop())
  describe.each(['postgres', 'postgres+advisory'])('%s', (scheme) => {
    const url = () => server.url.replace(/^postgres(ql)?:/, `${scheme}:`)
    endsByItself(url, [''])
    waitsWhilePending(url, [''])
  })
})

describe.runIf(wanted('etcd'))('etcd', () => {
  let cluster: EtcdCluster
  const url = () => `etcd://${cluster.members.map(({ host, port }) => `${host}:${port}`).join(',')}`
  beforeAll(async () => {
    cluster = await startEtcd()
  }, LIMIT_MS)
  afterAll(() => cluster?.stop())
  endsByItself(url, [''])
  waitsWhilePending(url, [''])

  test(
    'a lease that is held does not keep the process alive',
    async () => {
      const child = startProgram(join(import.meta.dirname, 'children', 'held.ts'), url())
      const { code, lines, errors } = await child.ended
      assert.deepEqual({ code, lines, errors }, { code: 0, lines: ['held'], errors: '' })
    },
    LIMIT_MS,
  )
})

describe.runIf(wanted('consul'))('Consul', () => {
  let cluster: ConsulCluster
  const url = () => `consul://${cluster.members.map(({ host, port }) => `${host}:${port}`).join(',')}`
  beforeAll(async () => {
    cluster = await startConsul()
  }, LIMIT_MS)
  afterAll(() => cluster?.stop())
  endsByItself(url, [''])
  waitsWhilePending(url, [''])

  test(
    'a lease that is held does not keep the process alive',
    async () => {
      const child = startProgram(join(import.meta.dirname, 'children', 'held.ts'), url())
      const { code, lines, errors } = await child.ended
      assert.deepEqual({ code, lines, errors }, { code: 0, lines: ['held'], errors: '' })
    },
    LIMIT_MS,
  )
})

describe.runIf(wanted('zookeeper'))('zookeeper', () => {
  let ensemble: ZooKeeperEnsemble
  const url = () =>
    `zookeeper://${ensemble.members.map(({ host, port }) => `${host}:${port}`).join(',')}?acl=open`
  beforeAll(async () => {
    ensemble = await startZooKeeper({ settings: { maxSessionTimeout: '60000' } })
  }, LIMIT_MS)
  afterAll(() => ensemble?.stop())
  endsByItself(url, [''])
  waitsWhilePending(url, [''])
})
