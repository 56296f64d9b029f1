import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { callsIn, clientsPart } from '../redis/commands.ts'
import { nameOnly, run } from '../short-run.ts'
import { allocatedBytes } from './meters.ts'
import type { CostReport } from './report.ts'
import { costOfPair, type PairCost, summarise, verdictOf } from './run.ts'

const client = {
  pairs: 10,
  userUs: 300,
  systemUs: 100,
  sentBytes: 2_000,
  receivedBytes: 500,
  allocatedBytes: 80_000,
}

test('the cost of a pair is what all pairs have cost, shared out among them', () => {
  expect(costOfPair(client, 0.5, { count: 20, us: 60 })).toEqual({
    client: 40,
    user: 30,
    system: 10,
    servers: 50,
    'in commands': 6,
    commands: 2,
    sent: 200,
    received: 50,
    allocated: 8_000,
  })
})

test('what cannot be known is not taken for nothing', () => {
  const cost = costOfPair({ ...client, sentBytes: 0, receivedBytes: 0 }, null, null)
  expect(cost).toMatchObject({ servers: null, 'in commands': null, commands: null, sent: null })
  expect(summarise('holdfast', [cost], [cost], false).costs).not.toHaveProperty('servers')
})

test('a ratio is the median of the rounds, each compared with the first contender in the same round', () => {
  const of = (userUs: number): PairCost => costOfPair({ ...client, userUs }, 0.5, null)
  const { costs } = summarise('holdfast', [of(300), of(800), of(6_000)], [of(100), of(400), of(6_000)], false)
  expect(costs.user).toEqual({ value: 80, ratio: 2 })
  expect(costs.servers).toEqual({ value: 50, ratio: 1 })
})

test('against another commit a higher cost fails, and a lower one passes', () => {
  const rounds = (userUs: number) =>
    Array.from({ length: 15 }, () => costOfPair({ ...client, userUs }, 1, null))
  const judged = (userUs: number) => summarise('new', rounds(userUs), rounds(300), true)
  const verdictFor = (userUs: number) =>
    verdictOf([
      {
        name: 'memory',
        raw: '',
        remarks: [],
        effort: { seconds: 1, rounds: 15 },
        comparisons: [{ setting: '', atOnce: 1, contenders: [judged(300), judged(userUs)] }],
      },
    ])
  expect(judged(600).costs.client).toMatchObject({ ratio: 1.75, low: 1.75, high: 1.75, verdict: 'fail' })
  expect(verdictFor(600)).toBe('fail')
  expect(verdictFor(100)).toBe('pass')
})

test('allocated is the growth of the heap and what was collected meanwhile', () => {
  const collection = (before: number, after: number) => ({
    beforeGC: { heapStatistics: { usedHeapSize: before } },
    afterGC: { heapStatistics: { usedHeapSize: after } },
  })
  expect(allocatedBytes(1_000, 1_500, [])).toBe(500)
  expect(allocatedBytes(1_000, 800, [collection(5_000, 1_200), collection(4_000, 700)])).toBe(6_900)
})

test('commands that scripts call are not counted beside the scripts', () => {
  const calls = callsIn([
    '+OK',
    '+1700000000.1 [0 127.0.0.1:5000] "EVALSHA" "f00" "1" "a"',
    '+1700000000.2 [0 lua] "GET" "a"',
    '+1700000000.3 [0 127.0.0.1:5000] "set" "[0 lua] \\"get\\"" "1"',
    '+1700000000.4 [0 lua] "set" "b" "2"',
  ])
  const info = [
    '# Commandstats',
    'cmdstat_get:calls=100,usec=90,usec_per_call=0.90,rejected_calls=0,failed_calls=0',
    'cmdstat_evalsha:calls=100,usec=1000,usec_per_call=10.00,rejected_calls=0,failed_calls=0',
    'cmdstat_set:calls=200,usec=160,usec_per_call=0.80,rejected_calls=0,failed_calls=0',
    'cmdstat_config|get:calls=7,usec=70,usec_per_call=10.00,rejected_calls=0,failed_calls=0',
  ].join('\r\n')
  expect(clientsPart(info, calls)).toEqual({ count: 200, us: 1_080 })
})

async function shortCost(...options: string[]): Promise<CostReport> {
  const { stdout } = await run('cost', ...options, '--seconds', '0.01', '--rounds', '2', '--json')
  return JSON.parse(stdout) as CostReport
}

test('an engine in this process has no wire and no servers', async () => {
  const { results } = await shortCost('memory')
  const contenders = results[0]?.comparisons.flatMap((comparison) => comparison.contenders) ?? []
  expect(contenders.map(({ name }) => name)).toEqual(['raw', 'holdfast', 'raw', 'holdfast'])
  for (const { costs, rounds } of contenders) {
    expect(rounds).toHaveLength(2)
    expect(Object.keys(costs)).toEqual(['client', 'user', 'system', 'allocated'])
  }
})

describe.runIf(wanted('redis'))('on Redis', () => {
  test('one pair alone is two commands, for the raw commands and for us', async () => {
    const { results } = await shortCost('redis', '--only', 'ioredis 5')
    const alone = results[0]?.comparisons.find(({ atOnce }) => atOnce === 1)?.contenders ?? []
    expect(alone.map(({ name }) => nameOnly(name))).toEqual(['raw', 'holdfast', 'holdfast fenced'])
    for (const { costs } of alone) {
      expect(costs.commands?.value).toBeCloseTo(2, 1)
      // The server takes it by the clock, so a busy machine lengthens it.
      expect(costs['in commands']?.value).toBeGreaterThan(0)
      expect(costs.servers?.value).toBeGreaterThan(0)
      expect(costs.sent?.value).toBeGreaterThan(100)
    }
  })
})

describe.runIf(wanted('postgres'))('on PostgreSQL', () => {
  test('one pair alone is two statements', async () => {
    const { results } = await shortCost('postgres', '--only', 'postgres.js')
    for (const { costs } of results[0]?.comparisons[0]?.contenders ?? [])
      expect(costs.commands?.value).toBeCloseTo(2, 0)
  })
})
