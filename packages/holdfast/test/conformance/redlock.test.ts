import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { backendCases, describeBackend } from '../../src/testing/describe-backend.ts'
import { libraries } from '../redis/clients.ts'
import { type Nodes, startNodes } from '../redlock/nodes.ts'
import { otherClient } from './other-clients.ts'
import { redlockMaxTtlMs, redlockWorld, redlockWorldInRealTime } from './redlock-world.ts'

const lacks = [
  'fencing',
  'queue',
  'shared',
  'permits',
  'data',
  'watch',
  'sessions',
  'session-claims',
] as const

// Cases that depend on time most also hold by the system's own clock.
const timely = new Set(['C57', 'C58', 'C61', 'C197', 'C198'])

describe.runIf(wanted('redis'))('on real nodes', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes({ maxTtlMs: redlockMaxTtlMs })
  })
  afterAll(() => nodes?.stop())

  for (const [index, library] of libraries.entries())
    describeBackend({
      name: `redlock with ${library.name}`,
      describe,
      test,
      createWorld: async () => redlockWorld(nodes, library),
      lacks,
      ...(index > 0 && otherClient),
    })

  for (const library of libraries.slice(0, 1))
    describeBackend({
      name: `redlock with ${library.name} in real time`,
      describe,
      test,
      cases: backendCases().filter(({ rule }) => timely.has(rule)),
      createWorld: async () => redlockWorldInRealTime(nodes, library),
      lacks,
    })
})
