import assert from 'node:assert/strict'
import { startProxy } from 'holdfast-lab/faults'
import { type EtcdCluster, fetchJson, startEtcd, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, onTestFinished, test } from 'vitest'
import { makeFence } from '../../../base/fence.ts'
import { describeGuard, type GuardException, type GuardWorld } from '../../../testing/describe-guard.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { type EtcdGuard, type EtcdGuardOptions, type EtcdTx, etcdGuard } from './etcd-guard.ts'

const fence = (token: bigint, name = 'n') =>
  makeFence({ issuer: 'i', name, mode: 'exclusive', token, grant: `g${token}` })

const except: readonly GuardException[] = [
  ...['D90', 'D91', 'D92', 'D93', 'D94', 'D95', 'D96', 'D97', 'D98', 'D99', 'D100', 'D101', 'D102'],
  ...['D122', 'D127', 'D140'],
].map((rule) => ({ rule, why: 'nothing is forgotten: a mark stays until its key is deleted' }))

describe.runIf(wanted('etcd'))('etcdGuard', () => {
  let cluster: EtcdCluster
  let worlds = 0
  const opened: EtcdGuard[] = []
  beforeAll(async () => {
    cluster = await startEtcd()
  })
  afterAll(async () => {
    for (const guard of opened) await guard.close()
    await cluster.stop()
  })

  const hosts = () => cluster.members.map(({ url }) => url)
  const open = (options: Partial<EtcdGuardOptions> = {}) => {
    const guard = etcdGuard({ hosts: hosts(), ...options })
    opened.push(guard)
    return guard
  }
  const own = () => ({ prefix: `test-${++worlds}/` })
  const gateway = <T>(path: string, body: object) =>
    fetchJson<T>(`${hosts()[0]}/v3/kv/${path}`, { method: 'POST', body: JSON.stringify(body) })
  const base64 = (text: string) => Buffer.from(text).toString('base64')

  function createWorld(): GuardWorld<EtcdTx> {
    const { prefix } = own()
    const clock = createFakeClock()
    const looking = open({ prefix })
    return {
      guard: async (options) => open({ ...options, prefix, clock }),
      read: async (tx, key) => (await tx.get(`${prefix}data/${key}`)) ?? undefined,
      write: async (tx, key, value) => tx.put(`${prefix}data/${key}`, value),
      stored: (key) => looking.transaction(async (tx) => (await tx.get(`${prefix}data/${key}`)) ?? undefined),
      transaction: (guard, body) => (guard as EtcdGuard).transaction(body),
      outsideTransaction: (guard) => (guard as EtcdGuard).transaction((tx) => tx),
      passTime: (ms) => clock.advance(ms),
      async reopen() {},
      async close() {},
    }
  }

  describeGuard({ name: 'etcdGuard', describe, test, createWorld: async () => createWorld(), except })

  test('step: conditions and writes for a transaction of etcd’s gateway, which fails when a newer holder has been there', async () => {
    const guard = open(own())
    const key = base64(`${worlds}/data`)
    const write = async (step: Awaited<ReturnType<typeof guard.step>>, value: string) => {
      const { compare, puts } = step
      const success = [...puts, { request_put: { key, value: base64(value) } }]
      return (await gateway<{ succeeded?: boolean }>('txn', { compare, success })).succeeded ?? false
    }
    const stored = async () => {
      const { kvs } = await gateway<{ kvs: { value: string }[] }>('range', { key })
      return Buffer.from(kvs[0]?.value ?? '', 'base64').toString()
    }
    assert.equal(await write(await guard.step(fence(1n)), 'one'), true)
    assert.equal(await write(await guard.step(fence(1n)), 'again'), true)
    const late = await guard.step(fence(1n))
    assert.equal(await write(await guard.step(fence(2n)), 'two'), true)
    assert.equal(await write(late, 'late'), false)
    assert.equal(await stored(), 'two')
    await assert.rejects(guard.step(fence(1n)), { code: 'FENCE_STALE' })
    await assert.rejects(guard.step(fence(2n), { once: true }), { code: 'FENCE_STALE' })
    assert.deepEqual(await guard.highest('n'), fence(2n))
  })

  test('step: the issuer of the first applied step is settled, and of two first steps one fails', async () => {
    const guard = open(own())
    const [one, other] = await Promise.all([
      guard.step(fence(1n, 'a')),
      guard.step(makeFence({ issuer: 'other', name: 'b', mode: 'exclusive', token: 1n, grant: 'g' })),
    ])
    const apply = async ({ compare, puts }: typeof one) =>
      (await gateway<{ succeeded?: boolean }>('txn', { compare, success: puts })).succeeded ?? false
    assert.deepEqual([await apply(one), await apply(other)], [true, false])
  })

  test('a step for several proofs holds only as long as none of their names was touched', async () => {
    const guard = open(own())
    const both = await guard.step([fence(1n, 'a'), fence(2n, 'b')])
    assert.equal(both.compare.length, 3)
    await guard.run(fence(3n, 'b'), () => {})
    const { succeeded } = await gateway<{ succeeded?: boolean }>('txn', {
      compare: both.compare,
      success: both.puts,
    })
    assert.ok(!succeeded)
    assert.equal(await guard.highest('a'), null)
  })

  test('another mark does not disturb a run, and what it has read does', async () => {
    const { prefix } = own()
    const [one, other] = [open({ prefix }), open({ prefix })]
    const [a, b] = [`${prefix}a`, `${prefix}b`]
    const both = fence(1n)
    await one.run(both, async (tx) => {
      // The fence passes again elsewhere: nothing that this run has read changes.
      await other.run(both, (inner) => inner.put(b, 'other'))
      tx.put(a, 'one')
    })
    const disturbed = one.run(both, async (tx) => {
      await tx.get(b)
      await other.run(both, (inner) => inner.put(b, 'changed'))
      tx.put(a, 'two')
    })
    await assert.rejects(disturbed, { code: 'CONFLICT' })
    assert.equal(await one.transaction((tx) => tx.get(a)), 'one')
    await one.transaction((tx) => tx.delete(a))
    assert.equal(await other.transaction((tx) => tx.get(a)), null)
  })

  test('a lost answer is unknown, and nothing is sent again', async () => {
    const { port } = new URL(hosts()[0] ?? '')
    const proxy = await startProxy({ host: '127.0.0.1', port: Number(port) })
    onTestFinished(() => proxy.close())
    const { prefix } = own()
    const guard = open({ prefix, hosts: [`http://127.0.0.1:${proxy.port}`], callTimeoutMs: 2_000 })
    const key = `${prefix}data`
    await guard.run(fence(1n), (tx) => tx.put(key, '1'))
    const lost = guard.run(fence(1n), async (tx) => {
      const before = Number(await tx.get(key))
      tx.put(key, String(before + 1))
      proxy.drop('down')
    })
    await assert.rejects(lost, { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    proxy.heal()
    assert.equal(await open({ prefix }).transaction((tx) => tx.get(key)), '2')
  })

  test('an abort ends a call at once: a read with the signal’s reason, and a write that was sent is unknown', async () => {
    const { port } = new URL(hosts()[0] ?? '')
    const proxy = await startProxy({ host: '127.0.0.1', port: Number(port) })
    onTestFinished(() => proxy.close())
    const { prefix } = own()
    const key = `${prefix}data`
    const planted = new Error('planted')
    const observer = open({ prefix })
    for (const at of ['marks', 'read', 'write'] as const) {
      proxy.heal()
      // By the fake clock no limit of time ends a call.
      const url = `http://127.0.0.1:${proxy.port}`
      const guard = open({ prefix, hosts: [url], clock: createFakeClock() })
      await guard.run(fence(1n), (tx) => tx.put(key, '1'))
      const cancelled = new AbortController()
      if (at === 'marks') proxy.drop('down')
      const cut = guard.run(
        fence(1n),
        async (tx) => {
          if (at === 'read') proxy.drop('down')
          await tx.get(key)
          proxy.drop('down')
          tx.put(key, '2')
        },
        { signal: cancelled.signal },
      )
      const rejected =
        at === 'write'
          ? assert.rejects(cut, { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
          : assert.rejects(cut, planted)
      const isSent = async () => at !== 'write' || (await observer.transaction((tx) => tx.get(key))) === '2'
      do await new Promise((resolve) => setTimeout(resolve, 20))
      while (!(await isSent()))
      cancelled.abort(planted)
      await rejected
    }
  })

  test('bad input is refused', async () => {
    const invalid = { code: 'INVALID_ARGUMENT' }
    const wrong = [
      { hosts: [] },
      { hosts: ['127.0.0.1'] },
      { prefix: '' },
      { callTimeoutMs: 0 },
      { key: 'a' },
    ]
    for (const options of [...wrong, { forgetAfterMs: 1_000 }])
      assert.throws(() => open(options as Partial<EtcdGuardOptions>), invalid, JSON.stringify(options))
    const guard = open(own())
    await assert.rejects(guard.prune({ untouchedForMs: 0 }), { code: 'UNSUPPORTED' })
    await guard.transaction(async (tx) => {
      assert.throws(() => tx.put('', 'value'), invalid)
      assert.throws(() => tx.put('key', 5 as never as string), invalid)
      await assert.rejects(tx.get(5 as never as string), invalid)
    })
  })
})
