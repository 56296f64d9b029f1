/**
 * The definition of "works": a backend passes every case, with declared exceptions only. The suite runs in any
 * test runner that has `describe` and `test`; what it needs of the engine is in `World`. It does not test what a lost answer is
 * called, `unknown` or `not-applied`: show that with a proxy before the server.
 *
 * ```ts
 * import { describe, test } from 'node:test'
 * import { describeBackend } from 'holdfast/testing'
 *
 * describeBackend({
 *   name: 'my engine',
 *   describe,
 *   test,
 *   createWorld: () => openMyWorld(),
 *   lacks: ['watch'],
 *   except: [{ rule: 'C71', lacksHook: 'countCommands', why: 'there is no wire on which commands could be counted' }],
 * })
 * ```
 */
import assert from 'node:assert/strict'
import type { Capability } from './conformance/capability.ts'
import type { BackendCase } from './conformance/case.ts'
import { backendCases } from './conformance/index.ts'
import { type Hook, MissingHookError, type World } from './conformance/world.ts'
import { exceptionTitle, sentenceOf } from './titles.ts'

export type { Capability } from './conformance/capability.ts'
export type { BackendCase } from './conformance/case.ts'
export { backendCases } from './conformance/index.ts'
export type { ClientOptions, Hook, World } from './conformance/world.ts'

/** A case that this backend does not pass. It is run all the same: one that would pass fails the run. */
export interface DeclaredException {
  readonly rule: string
  readonly why: string
  /** The case cannot be shown because the world lacks this hook; without it, the case runs and fails. */
  readonly lacksHook?: Hook
}

export interface BackendSuite {
  /** Stands before the topics in the runner's report. */
  readonly name: string
  readonly describe: (name: string, body: () => void) => unknown
  readonly test: (name: string, body: () => Promise<void>) => unknown
  /** A fresh world for every case. A server that cannot be reached is a failure, not a reason to skip. */
  readonly createWorld: () => Promise<World>
  /** Capabilities that the backend lacks, by its `info` or where `info` does not tell; its refusal is tested instead. */
  readonly lacks?: readonly Capability[]
  readonly except?: readonly DeclaredException[]
  /** By default all of `backendCases()`. */
  readonly cases?: readonly BackendCase[]
  /**
   * Plays only the cases that touch the client library, and says so in the report instead of "conforms": for a second
   * client of an engine on which the whole suite is played with another one. By default all cases are played.
   */
  readonly only?: 'client'
}

export function describeBackend(suite: BackendSuite): void {
  const { name, describe, test, createWorld, lacks = [], except = [], only, cases = backendCases() } = suite
  const played = only === undefined ? cases : cases.filter(({ touches }) => touches === only)
  const exceptions = new Map(except.map((exception) => [exception.rule, exception]))
  const topics = new Map<string, BackendCase[]>()
  for (const each of played) topics.set(each.topic, [...(topics.get(each.topic) ?? []), each])

  const narrowed = `only ${played.length} of ${cases.length} cases, which touch the client`
  describe(only === undefined ? `${name} conforms` : `${name}: ${narrowed}`, () => {
    test('every declared exception names a case once and says why', async () => {
      const titles = new Map(cases.map((each) => [each.rule, each.title]))
      for (const { rule, why, lacksHook } of except) {
        const title = titles.get(rule)
        assert(title !== undefined, `exception ${rule}: there is no such case`)
        assert(why.trim().length > 0, `exception ${rule}: say why`)
        const [guarantee] = title.match(/\bG[12357]\b/) ?? []
        assert(
          guarantee === undefined || lacksHook !== undefined,
          `exception ${rule}: no backend may be excepted from ${guarantee}`,
        )
      }
      assert(exceptions.size === except.length, 'two exceptions name the same case')
      assert(played.length > 0, 'no case is played')
    })
    for (const [topic, members] of topics) {
      describe(topic, () => {
        for (const each of members) {
          const exception = exceptions.get(each.rule)
          test(titleOf(each, lacks, exception), async () => {
            const world = await createWorld()
            try {
              if (exception === undefined) await each.run(world, lacks)
              else await expectFailure(each, world, lacks, exception)
            } finally {
              await world.close()
            }
          })
        }
      })
    }
  })
}

function titleOf(each: BackendCase, lacks: readonly Capability[], exception?: DeclaredException): string {
  if (exception !== undefined) return exceptionTitle(each, exception)
  const missing = each.needs.filter((capability) => lacks.includes(capability))
  if (missing.length > 0)
    return `${each.rule} lacks ${missing.join(', ')} and refuses it: ${sentenceOf(each.title)}`
  return `${each.rule} ${each.title}`
}

async function expectFailure(
  each: BackendCase,
  world: World,
  lacks: readonly Capability[],
  { lacksHook }: DeclaredException,
): Promise<void> {
  let failure: { readonly error: unknown } | undefined
  try {
    await each.run(world, lacks)
  } catch (error) {
    failure = { error }
  }
  assert(failure !== undefined, `exception ${each.rule} would pass: remove it`)
  const { error } = failure
  const missing = error instanceof MissingHookError ? error.hook : undefined
  assert.equal(
    missing,
    lacksHook,
    `exception ${each.rule}: it fails for another reason than was declared: ${error}`,
  )
}
