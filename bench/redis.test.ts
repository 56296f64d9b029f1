import { startRedis, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { chartOf } from './chart.ts'
import { nameOnly, shortRun, whoTookPart } from './short-run.ts'
import type { GiveBack, Taking } from './subject.ts'
import { contest } from './subjects/redis.ts'

describe.runIf(wanted('redis'))('the benchmark of redis', () => {
  test('everybody takes part in every setting, and in the hand-over', async () => {
    const { machine, subjects } = await shortRun('redis', '--seconds', '0.005', '--rounds', '1')
    const [subject] = subjects
    if (subject === undefined) throw new Error('nothing was measured')
    const ours = ['raw', 'holdfast', 'holdfast fenced']
    const peers = [
      'redlock',
      '@sesamecare-oss/redlock',
      'redis-semaphore',
      '@verrou/core',
      'redlock-universal',
    ]
    const everywhere = (setting: string, counts: number[], names: string[]) =>
      Object.fromEntries(counts.map((count) => [`${setting} × ${count}`, names]))
    expect(whoTookPart(subject)).toEqual({
      ...everywhere('ioredis 6', [1, 64, 256], [...ours, ...peers]),
      ...everywhere('node-redis 6', [1, 64, 256], [...ours, 'redlock-universal']),
      ...everywhere('ioredis 5', [1, 64], ours),
      ...everywhere('node-redis 5', [1, 64], ours),
    })
    for (const { contenders } of subject.comparisons)
      for (const { pairsPerSecond, p50Ms, p99Ms } of contenders) {
        expect(pairsPerSecond).toBeGreaterThan(0)
        expect(p99Ms).toBeGreaterThanOrEqual(p50Ms)
      }

    const contestants = subject.contest?.contestants ?? []
    const pushed = ['BLPOP floor', 'holdfast, ioredis', 'holdfast fenced, ioredis', 'holdfast, node-redis']
    expect(contestants.map(({ name }) => nameOnly(name))).toEqual([...pushed, ...peers])

    const chart = chartOf(subject, machine)
    for (const { name } of [...contestants, ...(subject.comparisons[0]?.contenders ?? [])])
      expect(chart).toContain(`>${name}</text>`)
    expect(chart).not.toMatch(/NaN|undefined|Infinity/)
  })

  test('everybody in the hand-over hands over', async () => {
    await using server = await startRedis()
    const { takers } = contest({ urls: [server.url], namespace: 'test' })
    const handedOver = await Promise.all(
      takers.map(async (taker) => {
        const taking = await taker.openTaking()
        const order: string[] = []
        const first = await patiently(taking, 0)
        const second = patiently(taking, 1).then((giveBack) => {
          order.push('the second has it')
          return giveBack()
        })
        order.push('the first gives it back')
        await first()
        await second
        await taking.close()
        return order
      }),
    )
    for (const order of handedOver) expect(order).toEqual(['the first gives it back', 'the second has it'])
  })
})

/** Some give up soon, and then it is tried again. */
async function patiently(taking: Taking, waiter: number): Promise<GiveBack> {
  for (;;) {
    const giveBack = await taking.take('bench/test', waiter)
    if (giveBack !== null) return giveBack
  }
}
