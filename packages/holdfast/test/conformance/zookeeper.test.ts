import { wanted } from 'holdfast-lab/servers'
import { afterAll, describe, test } from 'vitest'
import { atOnce } from '../../src/testing/conformance/at-once.ts'
import { backendCases, describeBackend } from '../../src/testing/describe-backend.ts'
import { ZooKeeperStage } from './zookeeper-world.ts'

const CASES_AT_ONCE = 48
// They count what the whole process does.
const counting = new Set(['C71', 'C239'])
// It restarts the ensemble under those that play beside it.
const restarting = new Set(['C50'])
const lacks = ['lock-delay'] as const
const except = [
  {
    rule: 'C223',
    why: 'every request prolongs a session of ZooKeeper, so a waiter that is granted in a process that runs is not dead; queue.test.ts shows it for processes that are',
  },
]

describe.runIf(wanted('zookeeper'))('three members', () => {
  const stage = new ZooKeeperStage()
  afterAll(() => stage.stop())
  const cases = backendCases().filter(({ rule }) => !restarting.has(rule))
  const together = atOnce((name, body) => test(name, body), CASES_AT_ONCE)

  describeBackend({
    name: 'zookeeper',
    describe,
    test: (name, body) => together(name, () => stage.play(body)),
    cases: cases.filter(({ rule }) => !counting.has(rule)),
    createWorld: () => stage.world(),
    lacks,
    except,
  })
  describeBackend({
    name: 'zookeeper, alone',
    describe,
    test,
    cases: cases.filter(({ rule }) => counting.has(rule)),
    createWorld: () => stage.world(),
    lacks,
  })
})

describe.runIf(wanted('zookeeper'))('all members restarted', () => {
  const stage = new ZooKeeperStage()
  afterAll(() => stage.stop())
  describeBackend({
    name: 'zookeeper, restarted',
    describe,
    test,
    cases: backendCases().filter(({ rule }) => restarting.has(rule)),
    createWorld: () => stage.world(),
    lacks,
  })
})
