/**
 * The definition of "guards": a guard passes every case, with declared exceptions only. The suite runs in any test
 * runner that has `describe` and `test`; what it needs of the resource is in `GuardWorld`.
 *
 * ```ts
 * import { describe, test } from 'node:test'
 * import { describeGuard } from 'holdfast/testing'
 *
 * describeGuard({
 *   name: 'my guard',
 *   describe,
 *   test,
 *   createWorld: () => openMyWorld(),
 *   except: [{ rule: 'D120', why: 'it protects what does not outlive the process either' }],
 * })
 * ```
 */
import assert from 'node:assert/strict'
import type { GuardCase } from './guard-cases/case.ts'
import { guardCases } from './guard-cases/index.ts'
import type { GuardWorld } from './guard-cases/world.ts'
import { exceptionTitle } from './titles.ts'

export type { GuardCase } from './guard-cases/case.ts'
export { guardCases } from './guard-cases/index.ts'
export type { GuardWorld } from './guard-cases/world.ts'

/** A case that this guard does not pass. It is run all the same: one that would pass fails the run. */
export interface GuardException {
  readonly rule: string
  readonly why: string
}

export interface GuardSuite<Tx> {
  /** Stands before the topics in the runner's report. */
  readonly name: string
  readonly describe: (name: string, body: () => void) => unknown
  readonly test: (name: string, body: () => Promise<void>) => unknown
  /** A fresh world for every case. A server that cannot be reached is a failure, not a reason to skip. */
  readonly createWorld: () => Promise<GuardWorld<Tx>>
  readonly except?: readonly GuardException[]
  /** By default all of `guardCases()`. */
  readonly cases?: readonly GuardCase[]
}

export function describeGuard<Tx>(suite: GuardSuite<Tx>): void {
  const { name, describe, test, createWorld, except = [], cases = guardCases() } = suite
  const exceptions = new Map(except.map((exception) => [exception.rule, exception]))
  const topics = Map.groupBy(cases, (each) => each.topic)

  describe(`${name} guards`, () => {
    test('every declared exception names a case once and says why', async () => {
      const rules = new Set(cases.map((each) => each.rule))
      for (const { rule, why } of except) {
        assert.ok(rules.has(rule), `exception ${rule}: there is no such case`)
        assert.ok(why.trim().length > 0, `exception ${rule}: say why`)
      }
      assert.equal(exceptions.size, except.length, 'two exceptions name the same case')
    })
    for (const [topic, members] of topics) {
      describe(topic, () => {
        for (const each of members) {
          const exception = exceptions.get(each.rule)
          const title = exception ? exceptionTitle(each, exception) : `${each.rule} ${each.title}`
          test(title, async () => {
            const world = await createWorld()
            try {
              if (exception === undefined) await each.run(world)
              else await expectFailure(each, world)
            } finally {
              await world.close()
            }
          })
        }
      })
    }
  })
}

async function expectFailure(each: GuardCase, world: GuardWorld<unknown>): Promise<void> {
  try {
    await each.run(world)
  } catch {
    return
  }
  assert.fail(`exception ${each.rule} would pass: remove it`)
}
