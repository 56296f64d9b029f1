import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { atOnce } from '../../src/testing/conformance/at-once.ts'
import { backendCases, describeBackend } from '../../src/testing/describe-backend.ts'
import { libraries, withPg } from '../postgres/clients.ts'
import { otherClient } from './other-clients.ts'
import { PostgresStage, type StageOptions } from './postgres-world.ts'

// Many cases share a server, which one of them restarts; that one has a server of its own.
const needsRestart = new Set(['C50'])
// Cases that depend on time most also hold by the clocks of the machine.
const timely = new Set(['C57', 'C58', 'C61', 'C197', 'C198'])
const CASES_AT_ONCE = 24

const ways = libraries.flatMap((library): StageOptions[] => [
  { library, through: 'directly', time: 'shared' },
  ...(wanted('pgbouncer') ? [{ library, through: 'pooler', time: 'shared' } as const] : []),
])

describe.runIf(wanted('postgres'))('in shared time', () => {
  const stages = new Map<StageOptions, PostgresStage>()
  beforeAll(async () => {
    await Promise.all(ways.map(async (way) => stages.set(way, await PostgresStage.start(way))))
  })
  afterAll(async () => {
    await Promise.all([...stages.values()].map((stage) => stage.stop()))
  })

  // The first case that runs starts those of all ways.
  const starters: (() => void)[] = []
  for (const way of ways) {
    const { library, through } = way
    const run = atOnce((name, body) => test(name, body), CASES_AT_ONCE, starters)
    describeBackend({
      name: `postgres with ${library.name}${through === 'pooler' ? ' behind PgBouncer' : ''}`,
      describe,
      test: run,
      cases: backendCases().filter(({ rule }) => !needsRestart.has(rule)),
      createWorld: () => (stages.get(way) as PostgresStage).world(),
      ...(library !== withPg || through === 'pooler' ? otherClient : {}),
    })
  }
})

const inRealTime: StageOptions = { library: withPg, through: 'directly', time: 'real' }

describe.runIf(wanted('postgres'))('in real time', () => {
  let shared: PostgresStage
  beforeAll(async () => {
    shared = await PostgresStage.start(inRealTime)
  })
  afterAll(() => shared?.stop())

  describeBackend({
    name: 'postgres in real time',
    describe,
    test: atOnce(test, timely.size),
    cases: backendCases().filter(({ rule }) => timely.has(rule)),
    createWorld: () => shared.world(),
  })
  describeBackend({
    name: 'postgres, restarted',
    describe,
    test,
    cases: backendCases().filter(({ rule }) => needsRestart.has(rule)),
    async createWorld() {
      const stage = await PostgresStage.start(inRealTime)
      const world = await stage.world()
      const close = async () => {
        await world.close()
        await stage.stop()
      }
      return { ...world, close }
    },
  })
})
