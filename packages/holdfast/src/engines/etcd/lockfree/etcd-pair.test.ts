import assert from 'node:assert/strict'
import { startProxy } from 'holdfast-lab/faults'
import { type EtcdCluster, startEtcd, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, onTestFinished, test } from 'vitest'
import { optimisticUpdate } from '../../../lockfree/optimistic-update.ts'
import { etcdGuard } from '../guard/etcd-guard.ts'
import { type EtcdPairOptions, etcdPair } from './index.ts'

describe.runIf(wanted('etcd'))('etcdPair', () => {
  let cluster: EtcdCluster
  beforeAll(async () => {
    cluster = await startEtcd()
  })
  afterAll(() => cluster.stop())

  const hosts = () => cluster.members.map(({ url }) => url)
  const open = (key: string, options: Partial<EtcdPairOptions> = {}) => {
    const pair = etcdPair({ hosts: hosts(), ...options }, key)
    onTestFinished(() => pair.close())
    return pair
  }
  const store = async (key: string, value: string | null) => {
    await using guard = etcdGuard({ hosts: hosts() })
    await guard.transaction((tx) => (value === null ? tx.delete(key) : tx.put(key, value)))
  }

  test('of many updates at once none is lost', async () => {
    await store('count', '0')
    const pairs = Array.from({ length: 4 }, () => open('count'))
    const add = (pair: (typeof pairs)[number]) =>
      optimisticUpdate(pair.read, (row) => pair.write(row, String(Number(row.value) + 1)), {
        retries: 100,
        jitterMs: 1,
      })
    await Promise.all(pairs.flatMap((pair) => Array.from({ length: 5 }, () => add(pair))))
    assert.equal((await pairs[0]?.read())?.value, '20')
  })

  test('a key that was deleted and made again is another version', async () => {
    const pair = open('again')
    assert.equal(await pair.read(), null)
    await store('again', 'same')
    const row = await pair.read()
    assert.ok(row)
    await store('again', null)
    await store('again', 'same')
    assert.equal(await pair.write(row, 'late'), false)
    assert.equal((await pair.read())?.value, 'same')
  })

  test('a lost answer is an error, and nothing is tried again', async () => {
    await store('lost', '1')
    const { port } = new URL(hosts()[0] ?? '')
    const proxy = await startProxy({ host: '127.0.0.1', port: Number(port) })
    onTestFinished(() => proxy.close())
    const pair = open('lost', { hosts: [`http://127.0.0.1:${proxy.port}`], callTimeoutMs: 2_000 })
    const updating = optimisticUpdate(pair.read, (row) => {
      proxy.drop('down')
      return pair.write(row, String(Number(row.value) + 1))
    })
    await assert.rejects(updating, { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    assert.equal((await open('lost').read())?.value, '2')
  })

  test('bad input is refused', async () => {
    const invalid = { code: 'INVALID_ARGUMENT' }
    for (const options of [{ hosts: [] }, { callTimeoutMs: 0 }, { host: 'a' }])
      assert.throws(() => open('key', options as object), invalid)
    assert.throws(() => open(''), invalid)
    await assert.rejects(open('key').write({ value: '', revision: 0 }, 5 as never as string), invalid)
  })
})
