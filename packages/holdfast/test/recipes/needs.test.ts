import { expect, test } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocker } from '../../src/locker/locker.ts'
import { election } from '../../src/recipes/election.ts'
import { checkNeeds, type RecipeNeed } from '../../src/recipes/needs.ts'
import { tickRunner } from '../../src/recipes/schedule.ts'
import { describeRecipe } from './worlds.ts'

const all: readonly RecipeNeed[] = ['data', 'fencing', 'holdAtLeast', 'shared', 'queue']

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
      waiting: 'poll' as const,
    }
    expect(() => checkNeeds('The election', { ...locker, holder: 'ada', info }, [need])).toThrow(
      /^The election cannot run on acme, which .+\. Backends that can: memory, sqlite, redis.*consul\./,
    )
  },
)

test('a refusal names only backends that meet all needs', async () => {
  await using locker = createLocker(memory())
  const info = { ...locker.info, name: 'redis', fencing: 'unfenced' as const }
  expect(() =>
    checkNeeds('schedule', { ...locker, holder: 'ada', info }, ['data', 'fencing', 'queue']),
  ).toThrow(
    /tokens\. Backends that can: memory, sqlite, redis with \?fencing=clock-backed, postgres, etcd, zookeeper, consul\. Or pass allowUnfenced: true/,
  )
})

test('a TTL in seconds is refused when a recipe is created', async () => {
  await using locker = createLocker(memory())
  expect(() => election(locker, 'leader', { ttlMs: 10 })).toThrow(
    /ttlMs must be at least .* 10 s would be 10000/,
  )
  expect(() => tickRunner(locker, { name: 'report', ttlMs: 10 }, () => {})).toThrow(/ttlMs must be at least/)
})

test('a backend is not taken for a locker', () => {
  expect(() => election(memory() as never, 'leader')).toThrow(/locker.*must be a locker/)
})

test('what is not a locker is refused', () => {
  expect(() => checkNeeds('The election', {} as never, [])).toThrow(/locker.*must be a locker/)
})
