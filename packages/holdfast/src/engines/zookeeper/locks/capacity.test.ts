/** A changed capacity of a name, and who takes it away when it is void. */
import { wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { limitedCall, openSession, Rig } from '../../../../test/zookeeper/rig.ts'
import { systemClock } from '../../../base/clock.ts'
import { systemRandom } from '../../../base/ids.ts'
import { call, permits } from '../../../testing/conformance/requests.ts'
import { ZooKeeperClient } from '../client/index.ts'
import { Connection, LeaderTime } from './connection.ts'

describe.runIf(wanted('zookeeper'))('a changed capacity', () => {
  let rig: Rig
  beforeAll(async () => {
    rig = await Rig.start()
  })
  afterAll(() => rig[Symbol.asyncDispose]())
  afterEach(() => rig.clear())

  test('T78 one who saw it void does not take away a later one', async () => {
    await using stack = new AsyncDisposableStack()
    const { hosts, namespace } = rig
    const backend = await rig.backend()
    const path = `${rig.root}/n/pool/capacity`
    const resize = (from: number, to: number) => {
      const its = Object.assign(limitedCall(10_000), { notAfterMs: backend.clock.wallMs() + 10_000 })
      return backend.resize('pool', { from, to }, its)
    }
    const take = async () => {
      const session = await openSession(backend)
      expect((await session.tryAcquire(permits('pool', 1, 3), call())).kind).toBe('granted')
      return session
    }
    const first = await take()
    expect(await resize(3, 2)).toBe('resized')
    await first.close(call())

    const client = new ZooKeeperClient('zookeeper', { hosts, acl: 'open' }, systemClock, systemRandom)
    const connection = new Connection(client, namespace, systemClock, systemRandom)
    stack.defer(() => connection.close())
    const session = await client.shared(call())
    const seen = await session.ask({ op: 'getChildren', path: connection.keys.name('pool') }, call())
    if (!seen.ok) throw new Error(seen.code)
    const { children, stat } = seen
    expect(children).toEqual(['capacity'])
    const judge = async () => {
      const found = { name: 'pool', children, version: stat.version, leaderTime: new LeaderTime(systemClock) }
      await connection.readOthers(session, found, [], call())
      // What it deletes is in flight before this.
      await session.ask({ op: 'setData', path: rig.root, data: '' }, call())
    }
    // Somebody else has taken the void one away, and another follows.
    await rig.operator.delete(path)
    const second = await take()
    expect(await resize(3, 1)).toBe('resized')
    await judge()
    expect(await rig.operator.data(path)).toMatch(/"capacity":1/)
    await second.close(call())
    expect(await backend.inspect('pool', call())).toBe(null)
    expect(await rig.remains()).toEqual([])
  })
})
