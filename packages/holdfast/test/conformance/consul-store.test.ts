/** The rules of a conditional store, on a cluster of three servers. */
import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { systemRandom } from '../../src/base/ids.ts'
import { call } from '../../src/testing/conformance/requests.ts'
import { describeStore } from '../../src/testing/describe-store.ts'
import { Rig } from '../consul/rig.ts'

let worlds = 0

describe.runIf(wanted('consul'))('three servers', () => {
  let rig: Rig
  beforeAll(async () => {
    rig = await Rig.start({ members: 3 })
  }, 120_000)
  afterAll(() => rig?.[Symbol.asyncDispose]())

  for (const lockDelayMs of [0, 1_000])
    describeStore({
      name: lockDelayMs === 0 ? 'Consul' : 'Consul, with a lock-delay',
      describe,
      test,
      createWorld: async () => {
        const backend = await rig.backend({ namespace: `store ${++worlds}` })
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
          close: () => backend[Symbol.asyncDispose](),
        }
      },
    })
})
