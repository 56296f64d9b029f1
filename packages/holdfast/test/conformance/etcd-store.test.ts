/** The rules of a conditional store, on a cluster of three members. */
import { startEtcd } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { systemRandom } from '../../src/base/ids.ts'
import { openEtcd } from '../../src/engines/etcd/locks/assemble.ts'
import { call } from '../../src/testing/conformance/requests.ts'
import { describeStore } from '../../src/testing/describe-store.ts'

let cluster: Awaited<ReturnType<typeof startEtcd>>
beforeAll(async () => {
  cluster = await startEtcd({ members: 3 })
}, 120_000)
afterAll(() => cluster?.stop())

let worlds = 0

describeStore({
  name: 'etcd',
  describe,
  test,
  createWorld: async () => {
    const hosts = cluster.members.map(({ url }) => url)
    const backend = await openEtcd({ hosts, namespace: `store ${++worlds}` })
    return {
      names: backend.names,
      openSession: async () => {
        const id = systemRandom.id() + systemRandom.id()
        const handle = { id, ttlMs: 60_000, holder: 'ada' }
        const { claims } = await backend.openClaims(handle, call())
        const find = async () => (await backend.findClaims(handle, call()))?.claims ?? null
        return { claims, end: () => claims.close(call()), find }
      },
      close: () => backend[Symbol.asyncDispose](),
    }
  },
})
