/** Guards with one fault each. */
import assert from 'node:assert/strict'
import { type Fence, makeFence } from '../../packages/holdfast/src/base/fence.ts'
import type { EnterOptions, Guard, Proof, RunOptions } from '../../packages/holdfast/src/guards/guard.ts'
import { MapResource } from '../../packages/holdfast/src/guards/memory/resource.ts'
import type { MemoryGuard } from '../../packages/holdfast/src/guards/memory.ts'
import type { ChangeGuard, Tx } from '../../packages/holdfast/test/memory-guard-world.ts'
import type { GuardBug } from './bug.ts'

export const guardBugs: readonly GuardBug[] = [
  {
    what: 'G5 a guard that checks nothing',
    changeGuard: (guard) => withRun(guard, (_proof, effect) => guard.resource.transaction(effect)),
    foundBy: { guardSuite: 'D3 D21 D22 D32 D50 D80' },
  },
  {
    what: 'T40 a guard that checks writes only',
    changeGuard: (guard) =>
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
    foundBy: { guardSuite: 'D5 D6 D7' },
  },
  {
    what: 'T41 a guard that checks in one step and acts in another',
    changeGuard: (guard) =>
      withRun(guard, async (proof, effect, options) => {
        await guard.run(proof, () => {}, options)
        return guard.resource.transaction(effect, options)
      }),
    foundBy: { guardSuite: 'D60 D61 D82' },
  },
  {
    what: 'T42 a guard that turns tokens into doubles',
    changeGuard: withFences((fence) => ({ ...fence, token: BigInt(Number(fence.token)) })),
    foundBy: { guardSuite: 'D9 D10' },
  },
  {
    what: 'T43 a guard that does not ask who issued a token',
    changeGuard: withFences((fence) => ({ ...fence, issuer: 'anybody' })),
    foundBy: { guardSuite: 'D50 D52 D53' },
  },
  {
    what: 'T68 a guard that compares tokens only',
    changeGuard: withFences((fence) => ({ ...fence, grant: 'any' })),
    foundBy: { guardSuite: 'D8 D93' },
  },
  {
    what: 'a guard that takes shared fences for exclusive ones',
    changeGuard: withFences((fence) => ({ ...fence, mode: 'exclusive' })),
    foundBy: { guardSuite: 'D20 D140' },
  },
  {
    what: 'a guard that takes exclusive fences for shared ones',
    changeGuard: withFences((fence) => ({ ...fence, mode: 'shared' })),
    foundBy: { guardSuite: 'D3 D21 D140' },
  },
  {
    what: 'a guard that ignores `once`',
    changeGuard: (guard) => withRun(guard, (proof, effect) => guard.run(proof, effect)),
    foundBy: { guardSuite: 'D80 D81 D85 D97' },
  },
  {
    what: 'a guard that believes any object',
    changeGuard: (guard) =>
      withRun(guard, (proof, effect, options) => {
        const fields = proof as Fence
        return guard.run(typeof fields?.token === 'bigint' ? makeFence(fields) : proof, effect, options)
      }),
    foundBy: { guardSuite: 'D36' },
  },
  {
    what: 'a guard that enters outside a transaction',
    changeGuard: (guard) => ({
      ...withRun(guard, (proof, effect, options) => guard.run(proof, effect, options)),
      enter: (_tx: Tx, proof: Proof | readonly Proof[], options?: EnterOptions) =>
        guard.run(proof, () => {}, options),
    }),
    foundBy: { guardSuite: 'D113' },
  },
  {
    what: 'a guard that forgets without a floor',
    changeGuard: (guard) => ({
      ...withRun(guard, (proof, effect, options) => guard.run(proof, effect, options)),
      prune: async () => {
        assert(guard.resource instanceof MapResource)
        const names = guard.resource.memoryOf(guard.name)?.names
        const forgotten = names?.size ?? 0
        names?.clear()
        return forgotten
      },
    }),
    foundBy: { guardSuite: 'D91 D92 D93 D95 D98 D140' },
  },
]

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
function withFences(change: (fence: Fence) => Parameters<typeof makeFence>[0]): ChangeGuard {
  const changed = (proof: Proof | readonly Proof[]): Proof | readonly Proof[] => {
    if (Array.isArray(proof)) return proof.map((each) => changed(each) as Proof)
    const { fence } = proof as { fence?: Fence }
    return fence === undefined && typeof (proof as Fence)?.token === 'bigint'
      ? makeFence(change(proof as Fence))
      : (proof as Proof)
  }
  return (guard) => withRun(guard, (proof, effect, options) => guard.run(changed(proof), effect, options))
}
