/** The rules of a conditional store, on a cluster of three servers, and on one that was lent. */
import { type ConsulCluster, startConsul, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { systemRandom } from '../../src/base/ids.ts'
import { openConsul } from '../../src/engines/consul/locks/assemble.ts'
import { Keys } from '../../src/engines/consul/locks/keys.ts'
import { call } from '../../src/testing/conformance/requests.ts'
import { describeStore } from '../../src/testing/describe-store.ts'
import { Operator } from '../consul/rig.ts'

let worlds = 0

function describeStores(hosts: () => readonly string[]): void {
  const operator = new Operator(hosts)
  for (const lockDelayMs of [0, 1_000])
    describeStore({
      name: lockDelayMs === 0 ? 'Consul' : 'Consul, with a lock-delay',
      describe,
      test,
      createWorld: async () => {
        const namespace = `store ${process.pid}-${++worlds}`
        const backend = await openConsul({ hosts: hosts(), namespace })
        return {
          names: backend.names,
          openSession: async () => {
            const id = systemRandom.id() + systemRandom.id()
            const { claims } = await backend.openClaims(
              { id, ttlMs: 60_000, holder: 'ada', lockDelayMs },
              call(),
            )
            const find = async () => (await backend.findClaims({ id }, call()))?.claims ?? null
            return { claims, end: () => claims.close(call()), find }
          },
          close: async () => {
            await backend[Symbol.asyncDispose]()
            await operator.deleteKeys(new Keys(namespace).root)
          },
        }
      },
    })
}

describe.runIf(wanted('consul'))('three servers', () => {
  let cluster: ConsulCluster
  beforeAll(async () => {
    cluster = await startConsul({ members: 3 })
  }, 120_000)
  afterAll(() => cluster?.stop())
  describeStores(() => cluster.members.map(({ url }) => url))
})

/** Another version, say. */
const lent = process.env.HOLDFAST_TEST_CONSUL_URL

describe.runIf(lent !== undefined)('a server that was lent', () => describeStores(() => [lent ?? '']))
