import { expect, test } from 'vitest'
import { memory } from '../../src/backends/memory/index.ts'
import { createLocker } from '../../src/locker/locker.ts'
import { checkNeeds, type RecipeNeed } from '../../src/recipes/needs.ts'
import { describeRecipe } from './worlds.ts'

const all: readonly RecipeNeed[] = ['data', 'fencing', 'holdAtLeast', 'shared']

describeRecipe('what recipes need', (stage) => {
  stage.test('is there', async ({ locker }) => {
    checkNeeds('a recipe', await locker(), all)
  })
})

test.each(all)(
  'a backend without %s is refused, and the refusal names backends that have it',
  async (need) => {
    await using locker = createLocker(memory())
    const info = {
      ...locker.info,
      name: 'acme',
      data: false,
      fencing: 'unfenced' as const,
      holdAtLeast: 'none' as const,
      modes: ['exclusive'] as const,
    }
    expect(() => checkNeeds('The election', { ...locker, info }, [need])).toThrow(
      /^The election cannot run on acme, which .+\. Backends that can: memory, sqlite, redis.*etcd\.$/,
    )
  },
)

test('what is not a locker is refused', () => {
  expect(() => checkNeeds('The election', {} as never, [])).toThrow(/locker.*must be a locker/)
})
