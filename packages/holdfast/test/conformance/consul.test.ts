import { wanted } from 'holdfast-lab/servers'
import { afterAll, describe, test } from 'vitest'
import { atOnce } from '../../src/testing/conformance/at-once.ts'
import { backendCases, describeBackend } from '../../src/testing/describe-backend.ts'
import { ConsulStage } from './consul-world.ts'

const CASES_AT_ONCE = 48
/** On one server, which allows 200 connections by default. */
const ON_ONE_SERVER = 8
// They count what the whole process does.
const counting = new Set(['C71', 'C239'])
// It restarts the cluster under those that play beside it.
const restarting = new Set(['C50'])
const lacks = ['watch'] as const

describe.runIf(wanted('consul'))('three servers', () => {
  const stage = new ConsulStage()
  afterAll(() => stage.stop())
  const cases = backendCases().filter(({ rule }) => !restarting.has(rule))
  const together = atOnce((name, body) => test(name, body), CASES_AT_ONCE)

  describeBackend({
    name: 'consul',
    describe,
    test: (name, body) => together(name, () => stage.play(body)),
    cases: cases.filter(({ rule }) => !counting.has(rule)),
    createWorld: () => stage.world(),
    lacks,
  })
  describeBackend({
    name: 'consul, alone',
    describe,
    test,
    cases: cases.filter(({ rule }) => counting.has(rule)),
    createWorld: () => stage.world(),
    lacks,
  })
})

describe.runIf(wanted('consul'))('all servers restarted', () => {
  const stage = new ConsulStage()
  afterAll(() => stage.stop())
  describeBackend({
    name: 'consul, restarted',
    describe,
    test,
    cases: backendCases().filter(({ rule }) => restarting.has(rule)),
    createWorld: () => stage.world(),
    lacks,
  })
})

/** Another version, say. It is not restarted. */
const lent = process.env.HOLDFAST_TEST_CONSUL_URL

describe.runIf(lent !== undefined)('a server that was lent', () => {
  const stage = new ConsulStage(lent)
  afterAll(() => stage.stop())
  const together = atOnce((name, body) => test(name, body), ON_ONE_SERVER)
  describeBackend({
    name: 'consul, lent',
    describe,
    test: (name, body) => together(name, () => stage.play(body)),
    cases: backendCases().filter(({ rule }) => !restarting.has(rule) && !counting.has(rule)),
    createWorld: () => stage.world(),
    lacks,
  })
})
