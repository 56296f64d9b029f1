/** The operators' view of the servers: lists in pages while some servers do not answer, and findings. */
import assert from 'node:assert/strict'
import { redisCall, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { libraries } from '../../../../test/redis/clients.ts'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import { call, eventually, hold, RedlockStage } from '../../../../test/redlock/stage.ts'
import { systemClock } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import type { Backend } from '../../../spi.ts'
import { redlock } from './index.ts'

/** A server that is away costs one time-out, by a clock that does not move. */
const inRealTime = { clock: systemClock, nodeTimeoutMs: 1_000 }
const names = Array.from({ length: 60 }, (_, index) => `name ${index}`)

describe.runIf(wanted('redis'))('redlock: operating', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes({ count: 5 })
  })
  afterEach(() => nodes.endClients())
  afterAll(() => nodes?.stop())

  /** The names of all pages; `before` is called with the number of each page. */
  async function list(backend: Backend, before: (page: number) => Promise<void> = async () => {}) {
    const seen = new Set<string>()
    let page = 0
    for (let cursor: string | null | undefined; cursor !== null; page++) {
      await before(page)
      const { items, next } = await backend.list(
        'name ',
        { limit: 7, ...(cursor !== undefined && { cursor }) },
        call(),
      )
      assert(items.length <= 7)
      for (const { name } of items) seen.add(name)
      cursor = next
    }
    return { seen, pages: page }
  }

  async function away(stage: RedlockStage, index: number): Promise<void> {
    const proxy = stage.proxy(index)
    proxy.refuse()
    proxy.reset()
    await eventually('its clients have noticed', () => proxy.connections === 0)
  }

  test('T82 T56 pages have every name that a majority has, also when servers go away in between', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session('ada', inRealTime)
    const backend = await stage.backend(inRealTime)
    for (const name of names) await hold(session, name)
    await nodes.flush()
    // Only a bare majority has it, and not the servers that are scanned first.
    await stage.remove('name 0', [0, 1])
    assert.equal((await list(backend)).seen.size, names.length)
    const { seen } = await list(backend, async (page) => {
      if (page === 3) await away(stage, 0)
      if (page === 9) await away(stage, 3)
    })
    assert.equal(seen.size, names.length)
    await away(stage, 4)
    await assert.rejects(
      list(backend),
      (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.retryable,
    )
  })

  test('what only a minority has is not listed, and a cursor that is none is refused', async () => {
    const stage = new RedlockStage(nodes)
    const backend = await stage.backend(inRealTime)
    await stage.rival('name 1', [0, 1])
    assert.deepEqual([...(await list(backend)).seen], [])
    for (const cursor of ['x', '[]', '[[],0,"x"]', '7'])
      await assert.rejects(backend.list('', { cursor, limit: 7 }, call()), { code: 'INVALID_ARGUMENT' })
  })

  test('diagnose tells of each server what matters', async () => {
    const stage = new RedlockStage(nodes)
    const codes = async (backend: Backend) => {
      const findings = (await backend.diagnose?.(call())) ?? []
      for (const { what, why, fix } of findings)
        for (const text of [what, why, fix]) assert.match(text, /\.$/)
      return findings.map(({ severity, code, what }) => {
        const [, node] = /^node (\d)/.exec(what) ?? []
        return `${node} ${severity} ${code.replace('HOLDFAST_', '')}`
      })
    }
    const backend = await stage.backend(inRealTime)
    assert.deepEqual(await codes(backend), [])
    await redisCall(stage.server(1), 'CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    await away(stage, 2)
    assert.deepEqual(await codes(backend), ['3 warning REDLOCK_NO_VOTE', '2 danger REDIS_EVICTION'])
    await redisCall(stage.server(1), 'CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
    stage.proxy(2).heal()
    const twice = await Promise.all([0, 0, 1].map((index) => libraries[0]?.open(stage.server(index).url)))
    const clients = twice.flatMap((opened) => opened?.client ?? [])
    const doubled = redlock({ clients, ...inRealTime })
    assert.deepEqual(await codes(doubled), ['1 danger REDLOCK_SAME_SERVER'])
    await doubled[Symbol.asyncDispose]()
    for (const opened of twice) opened?.close()
    const everyWrite = await stage.backend({ ...inRealTime, persistence: 'every-write', direct: true })
    await redisCall(stage.server(0), 'CONFIG', 'SET', 'appendonly', 'yes')
    await redisCall(stage.server(0), 'CONFIG', 'SET', 'appendfsync', 'always')
    assert.deepEqual(
      await codes(everyWrite),
      [2, 3, 4, 5].map((node) => `${node} danger REDLOCK_PERSISTENCE`),
    )
  })
})
