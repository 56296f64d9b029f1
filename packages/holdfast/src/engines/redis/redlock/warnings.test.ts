/** Nodes that a majority can do without, and that an operator should see to: they are told as `warning` events, once. */
import assert from 'node:assert/strict'
import { redisCall, wanted } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, onTestFinished, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import { call, eventually, hold, RedlockStage, ttlMs } from '../../../../test/redlock/stage.ts'
import { onEvent } from '../../../base/events.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { redlock } from './index.ts'

describe.runIf(wanted('redis'))('redlock: warnings', () => {
  let nodes: Nodes
  let warnings: string[]
  let stopListening: () => void
  beforeAll(async () => {
    nodes = await startNodes()
  })
  beforeEach(() => {
    warnings = []
    stopListening = onEvent('warning', ({ backend, namespace, warning }) => {
      assert.equal(backend, 'redlock')
      assert.match(namespace, /^stage-/)
      warnings.push(warning)
    })
  })
  afterEach(async () => {
    stopListening()
    await nodes.endClients()
  })
  afterAll(() => nodes?.stop())

  /** With three sessions one after the other, and a lock in each. */
  async function useOften(backend: ReturnType<typeof redlock>): Promise<void> {
    for (let times = 0; times < 3; times++) {
      const session = await backend
        .openSession({ id: newSessionId(), ttlMs, holder: 'ada' }, call())
        .then(namingGrants)
      await hold(session, `x/${times}`)
    }
    await nodes.flush()
  }

  test('all is well: nothing is said', async () => {
    await useOften(await new RedlockStage(nodes).backend())
    assert.deepEqual(warnings, [])
  })

  test('a node whose password is wrong: the majority goes on, and the node and the reason are told once', async () => {
    const { namespace, clock } = new RedlockStage(nodes)
    const clients = nodes.servers.map(
      ({ port }, index) =>
        new Redis({ port, ...(index === 1 && { username: 'nobody', password: 'secret' }) }),
    )
    const backend = redlock({ clients, namespace, clock })
    onTestFinished(async () => {
      await backend[Symbol.asyncDispose]()
      for (const client of clients) client.disconnect()
    })
    await useOften(backend)
    assert.equal(warnings.length, 1, warnings.join('\n'))
    assert.match(warnings[0] ?? '', /^node 2 of 5 \(localhost:\d+\): it has no vote now: WRONGPASS/)
    assert.doesNotMatch(warnings[0] ?? '', /secret/)
  })

  test('a replica: the same', async () => {
    const stage = new RedlockStage(nodes)
    const [first, second] = nodes.servers
    assert(first !== undefined && second !== undefined)
    await redisCall(second, 'REPLICAOF', first.host, first.port)
    onTestFinished(async () => {
      await redisCall(second, 'REPLICAOF', 'NO', 'ONE')
    })
    await useOften(await stage.backend())
    assert.equal(warnings.length, 1, warnings.join('\n'))
    assert.match(warnings[0] ?? '', /^node 2 of 5 .*: it has no vote now: .*READONLY/)
  })

  test('a node that refuses connections: the same', async () => {
    const { namespace, clock } = new RedlockStage(nodes)
    const clients = nodes.servers.map(({ port }, index) => new Redis({ port: index === 4 ? 1 : port }))
    const backend = redlock({ clients, namespace, clock })
    onTestFinished(async () => {
      await backend[Symbol.asyncDispose]()
      for (const client of clients) client.disconnect()
    })
    await useOften(backend)
    assert.deepEqual(
      warnings.map((warning) => warning.replace(/ECONNREFUSED.*/, 'ECONNREFUSED')),
      ['node 5 of 5 (localhost:1): it has no vote now: connect ECONNREFUSED'],
    )
  })

  test('a server that may remove keys when its memory runs short', async () => {
    const stage = new RedlockStage(nodes)
    await redisCall(stage.server(2), 'CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    onTestFinished(async () => {
      await redisCall(stage.server(2), 'CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
    })
    await useOften(await stage.backend())
    await eventually('it is told', () => warnings.length > 0)
    assert.equal(warnings.length, 1, warnings.join('\n'))
    assert.match(warnings[0] ?? '', /^node 3 of 5 .*: maxmemory-policy is allkeys-lru\. .*noeviction/)
  })
})
