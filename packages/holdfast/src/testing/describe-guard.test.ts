/** The suite itself: every kind of broken guard must turn a case red, and exceptions must be honest. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { type Fence, makeFence } from '../base/fence.ts'
import type { EnterOptions, Guard, Proof, RunOptions } from '../guards/guard.ts'
import { MapResource } from '../guards/memory/resource.ts'
import { type MemoryGuard, MemoryResource, type MemoryTx, memoryGuard } from '../guards/memory.ts'
import { describeGuard, type GuardCase, type GuardWorld, guardCases } from './describe-guard.ts'
import { createFakeClock } from './fake-clock.ts'

type Tx = MemoryTx<string>
type Break = (guard: MemoryGuard<string>) => Guard<Tx>

function createWorld(sabotage: Break): GuardWorld<Tx> {
  const clock = createFakeClock()
  const resource = new MemoryResource<string>()
  return {
    guard: async (options) => sabotage(memoryGuard({ ...options, resource, clock })),
    read: async (tx, key) => tx.get(key),
    write: async (tx, key, value) => tx.set(key, value),
    stored: async (key) => resource.get(key),
    transaction: (_guard, body) => resource.transaction(body),
    outsideTransaction: () => resource.transaction((tx) => tx),
    passTime: (ms) => clock.advance(ms),
    async reopen() {},
    async close() {},
  }
}

async function failing(sabotage: Break, cases: readonly GuardCase[] = guardCases()): Promise<string[]> {
  const failed: string[] = []
  for (const each of cases) await each.run(createWorld(sabotage)).catch(() => failed.push(each.rule))
  return failed
}

/** The same guard, but `run` does something else. */
function withRun(
  guard: MemoryGuard<string>,
  run: <T>(
    proof: Proof | readonly Proof[],
    effect: (tx: Tx) => Promise<T> | T,
    options?: RunOptions,
  ) => Promise<T>,
): Guard<Tx> {
  return {
    name: guard.name,
    run,
    enter: (tx, proof, options) => guard.enter(tx, proof, options),
    highest: (name) => guard.highest(name),
    prune: (options) => guard.prune(options),
  }
}

/** The same guard, but it is shown other fences than it was given. */
function withFences(change: (fence: Fence) => Parameters<typeof makeFence>[0]): Break {
  const changed = (proof: Proof | readonly Proof[]): Proof | readonly Proof[] => {
    if (Array.isArray(proof)) return proof.map((each) => changed(each) as Proof)
    const { fence } = proof as { fence?: Fence }
    return fence === undefined && typeof (proof as Fence)?.token === 'bigint'
      ? makeFence(change(proof as Fence))
      : (proof as Proof)
  }
  return (guard) => withRun(guard, (proof, effect, options) => guard.run(changed(proof), effect, options))
}

describe('describeGuard', () => {
  test('an honest guard passes every case', async () => {
    assert.deepEqual(await failing((guard) => guard), [])
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

  const breaks: Record<string, { readonly sabotage: Break; readonly caughtBy: readonly string[] }> = {
    'G5 a guard that checks nothing': {
      sabotage: (guard) => withRun(guard, (_proof, effect) => guard.resource.transaction(effect)),
      caughtBy: ['D3', 'D21', 'D22', 'D32', 'D50', 'D80'],
    },
    'T40 a guard that checks writes only': {
      sabotage: (guard) =>
        withRun(guard, (proof, effect) =>
          guard.resource.transaction(async (tx) => {
            let entered: Promise<void> | undefined
            const enter = () => (entered ??= guard.enter(tx, proof))
            const result = await effect({
              get: (key) => tx.get(key),
              set(key, value) {
                void enter()
                tx.set(key, value)
              },
              delete(key) {
                void enter()
                tx.delete(key)
              },
            })
            await entered
            return result
          }),
        ),
      caughtBy: ['D5', 'D6', 'D7'],
    },
    'T41 a guard that checks in one step and acts in another': {
      sabotage: (guard) =>
        withRun(guard, async (proof, effect, options) => {
          await guard.run(proof, () => {}, options)
          return guard.resource.transaction(effect, options)
        }),
      caughtBy: ['D60', 'D61', 'D82'],
    },
    'T42 a guard that turns tokens into doubles': {
      sabotage: withFences((fence) => ({ ...fence, token: BigInt(Number(fence.token)) })),
      caughtBy: ['D9', 'D10'],
    },
    'T43 a guard that does not ask who issued a token': {
      sabotage: withFences((fence) => ({ ...fence, issuer: 'anybody' })),
      caughtBy: ['D50', 'D52', 'D53'],
    },
    'T68 a guard that compares tokens only': {
      sabotage: withFences((fence) => ({ ...fence, grant: 'any' })),
      caughtBy: ['D8', 'D93'],
    },
    'a guard that takes shared fences for exclusive ones': {
      sabotage: withFences((fence) => ({ ...fence, mode: 'exclusive' })),
      caughtBy: ['D20', 'D140'],
    },
    'a guard that takes exclusive fences for shared ones': {
      sabotage: withFences((fence) => ({ ...fence, mode: 'shared' })),
      caughtBy: ['D3', 'D21', 'D140'],
    },
    'a guard that ignores `once`': {
      sabotage: (guard) => withRun(guard, (proof, effect) => guard.run(proof, effect)),
      caughtBy: ['D80', 'D81', 'D85', 'D97'],
    },
    'a guard that believes any object': {
      sabotage: (guard) =>
        withRun(guard, (proof, effect, options) => {
          const fields = proof as Fence
          return guard.run(typeof fields?.token === 'bigint' ? makeFence(fields) : proof, effect, options)
        }),
      caughtBy: ['D36'],
    },
    'a guard that enters outside a transaction': {
      sabotage: (guard) => ({
        ...withRun(guard, (proof, effect, options) => guard.run(proof, effect, options)),
        enter: (_tx: Tx, proof: Proof | readonly Proof[], options?: EnterOptions) =>
          guard.run(proof, () => {}, options),
      }),
      caughtBy: ['D113'],
    },
    'a guard that forgets without a floor': {
      sabotage: (guard) => ({
        ...withRun(guard, (proof, effect, options) => guard.run(proof, effect, options)),
        prune: async () => {
          assert(guard.resource instanceof MapResource)
          const { names } = guard.resource.mapsOf(guard.name)
          const { size } = names
          names.clear()
          return size
        },
      }),
      caughtBy: ['D91', 'D92', 'D93', 'D95', 'D98', 'D140'],
    },
  }

  for (const [name, { sabotage, caughtBy }] of Object.entries(breaks))
    test(`catches ${name}`, async () => {
      const cases = guardCases().filter(({ rule }) => caughtBy.includes(rule))
      assert.deepEqual((await failing(sabotage, cases)).sort(), [...caughtBy].sort())
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
        createWorld: async () => ({ ...createWorld((guard) => guard), close: async () => void closed++ }),
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
