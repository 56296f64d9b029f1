import { expect, test } from 'vitest'
import { readOptions, usageOf } from './options.ts'

const available = ['memory', 'redis']
const read = (...args: string[]) => readOptions(args, available)

test('without options there are five rounds, and each subject has its own length', () => {
  const options = read('redis', 'memory', 'redis')
  expect(options).toMatchObject({ names: ['redis', 'memory'], rounds: 5, save: false, json: false })
  expect(options).not.toHaveProperty('seconds')
  expect(options).not.toHaveProperty('against')
})

test('--against takes a commit and at least 15 rounds', () => {
  expect(read('redis', '--against', 'main~2')).toMatchObject({ against: 'main~2', rounds: 15 })
  expect(read('redis', '--against', 'main', '--rounds', '21', '--seconds', '0.1')).toMatchObject({
    rounds: 21,
    seconds: 0.1,
  })
  expect(() => read('redis', '--against', 'main', '--rounds', '14')).toThrow('at least 15 rounds, not 14')
  expect(() => read('redis', '--against', 'main', '--save')).toThrow('--save is not for --against')
  expect(read('redis', '--against', 'main', '--only', 'pg')).toMatchObject({ only: 'pg' })
  expect(() => read('redis', '--only', 'pg')).toThrow('--only is for --against')
  expect(() => read('--against', 'main')).toThrow('Name at least one backend')
})

test('--rtt takes milliseconds, also together with --against', () => {
  expect(read('redis', '--rtt', '2')).toMatchObject({ rttMs: 2, rounds: 5 })
  expect(read('redis', '--rtt', '0.5', '--against', 'main')).toMatchObject({ rttMs: 0.5, rounds: 15 })
  expect(() => read('redis', '--rtt', 'slow')).toThrow('--rtt must be a positive number, not slow')
})

test('growth takes sizes, and has backends of its own when none is named', () => {
  expect(read('redis')).toMatchObject({ growth: false })
  expect(read('growth', 'redis', '--sizes', '1,20')).toMatchObject({
    growth: true,
    names: ['redis'],
    sizes: [1, 20],
  })
  const usual = readOptions(['growth'], ['memory', 'sqlite', 'redis', 'redlock', 'postgres'])
  expect(usual).toMatchObject({
    names: ['memory', 'sqlite', 'redis', 'postgres'],
    sizes: [100, 1_000, 10_000],
  })
  expect(() => read('growth', 'redis', '--sizes', '20,1')).toThrow('in ascending order, not 20,1')
  expect(() => read('growth', 'redis', '--sizes', '5')).toThrow('two or more')
  expect(() => read('memory', 'growth')).toThrow('growth comes first')
  expect(() => read('growth', 'redis', '--rtt', '2')).toThrow('--rtt is not for growth')
  expect(() => read('redis', '--sizes', '1,2')).toThrow('--sizes is for growth')
})

test('cost measures all engines when none is named, also against a commit, and may write profiles', () => {
  expect(read('cost')).toMatchObject({ cost: true, names: available, rounds: 5, profile: false })
  expect(read('cost', 'redis', '--against', 'main', '--only', 'fenced')).toMatchObject({
    names: ['redis'],
    against: 'main',
    rounds: 15,
    only: 'fenced',
  })
  expect(read('cost', 'redis', '--profile')).toMatchObject({ profile: true })
  expect(() => read('redis', '--profile')).toThrow('--profile is for cost')
  expect(() => read('redis', 'cost')).toThrow('cost comes first')
  // What is saved is a whole table.
  expect(() => read('cost', 'redis', '--only', 'fenced', '--save')).toThrow('--save is for all settings')
})

test('what is not understood is refused', () => {
  expect(() => read('paper')).toThrow('There is no paper; there are: memory, redis.')
  expect(() => read('redis', '--rounds', 'many')).toThrow('--rounds must be a positive number, not many')
  expect(() => read('redis', '--seconds', '0')).toThrow('--seconds must be a positive number')
  expect(() => read('redis', '--quickly')).toThrow('--quickly')
})

test('the help names every option', () => {
  expect(read('--help')).toBe('help')
  const usage = usageOf(available)
  for (const option of [
    'against',
    'only',
    'rtt',
    'sizes',
    'seconds',
    'rounds',
    'folder',
    'profile',
    'save',
    'json',
  ])
    expect(usage).toContain(`--${option}`)
})

test('recipes are measured on engines with tokens that several processes share', () => {
  const engines = ['sqlite', 'redis', 'redlock', 'postgres', 'etcd']
  const readRecipes = (...args: string[]) => readOptions(args, engines)
  expect(readRecipes('recipes')).toMatchObject({
    recipes: true,
    names: ['sqlite', 'redis', 'postgres', 'etcd'],
  })
  expect(readRecipes('recipes', 'etcd', '--only', 'election')).toMatchObject({
    names: ['etcd'],
    only: 'election',
  })
  expect(() => readRecipes('redis', 'recipes')).toThrow('recipes comes first')
  expect(() => readRecipes('recipes', 'redlock')).toThrow(
    'Recipes are measured on sqlite, redis, postgres, etcd, not on redlock',
  )
  expect(() => readRecipes('recipes', '--seconds', '2')).toThrow('--seconds is not for recipes')
})
