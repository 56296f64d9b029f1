/**
 * `waitAof` on a real server. What must hold depends on the server that is there: one older than 7.2 has no WAITAOF, and
 * is refused; on a newer one grants are confirmed, or undone and told.
 */
import assert from 'node:assert/strict'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { Rig } from '../../../test/redis/rig.ts'
import { isHoldfastError } from '../../base/errors.ts'

const lock = (name: string) => `holdfast:default:{${name}}`

const isNotApplied = (error: unknown): error is Error =>
  isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied'

describe.runIf(wanted('redis'))('waitAof', () => {
  let withFile: Server
  let without: Server
  beforeAll(async () => {
    const settings = { appendonly: 'yes', appendfsync: 'everysec' }
    ;[withFile, without] = await Promise.all([startRedis({ settings }), startRedis()])
  })
  afterAll(() => Promise.all([withFile?.stop(), without?.stop()]))

  async function isRefused(): Promise<void> {
    await using rig = new Rig()
    const locker = await rig.locker(withFile.url, { backend: { waitAof: { timeoutMs: 5_000 } } })
    await assert.rejects(locker.tryAcquire('x'), (error) => {
      assert(isHoldfastError(error, 'UNSUPPORTED'))
      assert.match(error.message, /no WAITAOF: waitAof needs 7\.2 or newer/)
      return true
    })
  }

  async function confirmsOrUndoes(): Promise<void> {
    await using rig = new Rig()
    const confirmed = await rig.locker(withFile.url, { backend: { waitAof: { timeoutMs: 20_000 } } })
    const lease = await confirmed.acquire('x')
    assert.equal(await confirmed.tryAcquire('x'), null)
    await withFile.kill()
    await withFile.restart()
    assert.match(String(await redisCall(withFile, 'GET', lock('x'))), /^hf1\|/, 'it has survived the crash')
    await lease.release()

    const noFile = await rig.locker(without.url, { backend: { waitAof: { timeoutMs: 200 } } })
    await assert.rejects(noFile.tryAcquire('y'), isNotApplied)
    assert.equal(await redisCall(without, 'EXISTS', lock('y')), 0)

    const waitAof = { replicas: 1, timeoutMs: 2_000 }
    const noReplica = await rig.locker(withFile.url, { backend: { waitAof } })
    await assert.rejects(noReplica.tryAcquire('z'), (error) => {
      assert(isNotApplied(error))
      assert.match(error.message, /only 0 of 1 replicas had it.*undone/)
      return true
    })
    assert.equal(await redisCall(withFile, 'EXISTS', lock('z')), 0)
  }

  test('a grant that the append-only file has not got is undone and told; a server that cannot say is refused', async () => {
    const [command] = (await redisCall(withFile, 'COMMAND', 'INFO', 'WAITAOF')) as readonly unknown[]
    await (command === null ? isRefused() : confirmsOrUndoes())
  })
})
