/** The rules of a conditional store, on an ensemble of three members. */
import { startZooKeeper } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { systemRandom } from '../../src/base/ids.ts'
import { openZooKeeper } from '../../src/engines/zookeeper/locks/assemble.ts'
import { Keys } from '../../src/engines/zookeeper/locks/keys.ts'
import { call } from '../../src/testing/conformance/requests.ts'
import { describeStore } from '../../src/testing/describe-store.ts'
import { Operator } from '../zookeeper/rig.ts'
import { expectOneSession } from '../zookeeper/sessions.ts'
import { expectNothingForEver } from './zookeeper-world.ts'

let cluster: Awaited<ReturnType<typeof startZooKeeper>>
let operator: Operator
beforeAll(async () => {
  cluster = await startZooKeeper({ members: 3 })
  operator = new Operator(cluster.members.map(({ host, port }) => `${host}:${port}`))
}, 120_000)
afterAll(async () => {
  await expectOneSession(cluster, (await operator.session()).id)
  await operator?.close()
  await cluster?.stop()
})

let worlds = 0

describeStore({
  name: 'zookeeper',
  describe,
  test,
  createWorld: async () => {
    const hosts = cluster.members.map(({ host, port }) => `${host}:${port}`)
    const namespace = `store-${++worlds}`
    const backend = await openZooKeeper({ hosts, acl: 'open', namespace })
    return {
      names: backend.names,
      openSession: async () => {
        const id = systemRandom.id() + systemRandom.id()
        const handle = { id, ttlMs: 30_000, holder: 'ada' }
        const { claims } = await backend.openClaims(handle, call())
        const find = async () => (await backend.findClaims(handle, call()))?.claims ?? null
        return { claims, end: () => operator.endSession(new Keys('', namespace), id), find }
      },
      close: async () => {
        const keys = new Keys('', namespace)
        await operator.endSessions(keys.root)
        // Whoever finds that a changed capacity or a closed name is void deletes it.
        await backend.list('', { limit: 1_000 }, call())
        await backend[Symbol.asyncDispose]()
        // A case keeps a name closed for a minute.
        await expectNothingForEver(operator, keys, /\/kept\.60000\.\d+$/)
      },
    }
  },
})
