/** The suite itself: exceptions must be honest. That broken guards turn it red is shown in lab/bugs. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { memoryGuardWorld } from '../../test/memory-guard-world.ts'
import { describeGuard, type GuardCase, guardCases } from './describe-guard.ts'

describe('describeGuard', () => {
  test('an honest guard passes every case', async () => {
    for (const { rule, run } of guardCases()) await assert.doesNotReject(run(memoryGuardWorld()), rule)
  })

  test('there are at least 40 cases, each with a rule and a title of its own', () => {
    const cases = guardCases()
    assert.ok(cases.length >= 40)
    assert.equal(new Set(cases.map(({ rule }) => rule)).size, cases.length)
    assert.equal(new Set(cases.map(({ title }) => title)).size, cases.length)
    for (const trap of ['G5', 'T40', 'T41', 'T42', 'T43', 'T68'])
      assert.ok(
        cases.some(({ title }) => title.includes(trap)),
        trap,
      )
  })

  describe('declared exceptions', () => {
    const passes: GuardCase = { rule: 'D1', title: 'passes', topic: 'topic', run: async () => {} }
    const fails: GuardCase = {
      rule: 'D2',
      title: 'G5 T41 fails',
      topic: 'topic',
      run: () => Promise.reject(new Error('broken')),
    }

    async function report(cases: readonly GuardCase[], except: readonly { rule: string; why: string }[]) {
      const tests: [string, () => Promise<void>][] = []
      let closed = 0
      describeGuard({
        name: 'it',
        describe: (_name, body) => body(),
        test: (name, body) => tests.push([name, body]),
        createWorld: async () => ({ ...memoryGuardWorld(), close: async () => void closed++ }),
        cases,
        except,
      })
      const outcomes = new Map<string, string>()
      for (const [name, body] of tests)
        await body().then(
          () => outcomes.set(name, 'passed'),
          (error: Error) => outcomes.set(name, error.message),
        )
      assert.equal(closed, cases.length)
      return outcomes
    }

    test('turn a failure into a pass that says so', async () => {
      const outcomes = await report([passes, fails], [{ rule: 'D2', why: 'it cannot' }])
      assert.equal(outcomes.get('D1 passes'), 'passed')
      assert.equal(outcomes.get('exception D2: fails (it cannot)'), 'passed')
    })

    test('fail the run when the case would pass', async () => {
      const outcomes = await report([passes, fails], [{ rule: 'D1', why: 'it cannot' }])
      assert.match(outcomes.get('exception D1: passes (it cannot)') ?? '', /would pass: remove it/)
      assert.equal(outcomes.get('D2 G5 T41 fails'), 'broken')
    })

    test('must name an existing case, once, and say why', async () => {
      const title = 'every declared exception names a case once and says why'
      for (const except of [
        [{ rule: 'D999', why: 'it cannot' }],
        [{ rule: 'D2', why: ' ' }],
        [
          { rule: 'D2', why: 'one' },
          { rule: 'D2', why: 'two' },
        ],
      ])
        assert.notEqual((await report([fails], except)).get(title), 'passed')
      assert.equal((await report([fails], [{ rule: 'D2', why: 'it cannot' }])).get(title), 'passed')
    })
  })
})
