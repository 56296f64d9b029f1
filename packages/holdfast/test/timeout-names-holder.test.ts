/** On every engine, an acquire that times out names the holder, also while others wait. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type Cluster,
  type Server,
  startPostgres,
  startRedis,
  startRedisNodes,
  wanted,
} from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { isHoldfastError } from '../src/base/errors.ts'
import { openLocker } from '../src/open.ts'

function namesTheHolder(url: () => string): void {
  test('names the holder of the lock, and its own locker', async () => {
    await using holding = await openLocker(url(), { holder: 'holding' })
    await using waiting = await openLocker(url(), { holder: 'waiting' })
    await using third = await openLocker(url(), { holder: 'third' })
    const lease = await holding.acquire('x', { note: 'a note' })
    const stop = new AbortController()
    const another = third.acquire('x', { signal: stop.signal }).catch(() => {})
    const failureOf = (locker: typeof waiting) =>
      locker.acquire('x', { waitMs: 300 }).then(
        () => assert.fail('it was granted'),
        (error: unknown) => {
          assert(isHoldfastError(error, 'ACQUIRE_TIMEOUT'), String(error))
          return error
        },
      )
    const theirs = await failureOf(waiting)
    assert.match(theirs.message, /It is held by "holding" \(lease /)
    assert.deepEqual(
      theirs.holders?.map(({ id, holder }) => ({ id, holder })),
      [{ id: lease.id, holder: 'holding' }],
    )
    const own = await failureOf(holding)
    assert.match(own.message, /held by this locker/)
    assert.equal(own.heldByThisLocker, true)
    stop.abort()
    await another
    await lease.release()
  })
}

describe('without a server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-timeouts-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  describe('memory', () => namesTheHolder(() => 'memory:timeouts'))
  describe('sqlite', () => namesTheHolder(() => `sqlite:${join(folder, 'locks.db')}`))
})

describe.runIf(wanted('redis'))('on Redis', () => {
  let server: Server
  let nodes: Cluster
  beforeAll(async () => {
    ;[server, nodes] = await Promise.all([startRedis(), startRedisNodes(3)])
  })
  afterAll(async () => {
    await Promise.all([server?.stop(), nodes?.stop()])
  })
  describe('redis', () => namesTheHolder(() => server.url))
  describe('redlock', () =>
    namesTheHolder(
      () =>
        `redlock://${nodes.members.map(({ host, port }) => `${host}:${port}`).join(',')}?persistence=every-write`,
    ))
})

describe.runIf(wanted('postgres'))('on PostgreSQL', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())
  describe.each(['postgres', 'postgres+advisory'])('%s', (scheme) =>
    namesTheHolder(() => server.url.replace(/^postgres(ql)?:/, `${scheme}:`)),
  )
})
