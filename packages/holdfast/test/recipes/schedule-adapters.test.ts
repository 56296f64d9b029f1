/** The schedulers that people have: two replicas of each, in real time. `examples/schedules-nestjs` has the third. */
import { Cron } from 'croner'
import { schedule as nodeCron } from 'node-cron'
import { expect, type TestContext, test } from 'vitest'
import { MemoryEngine, memory } from '../../src/engines/memory/index.ts'
import { createLocker } from '../../src/locker/locker.ts'
import { type TickRunner, tickOfCroner, tickOfNodeCron, tickRunner } from '../../src/recipes/schedule.ts'

const EVERY_SECOND = '* * * * * *'

type Start = (ticks: TickRunner) => () => unknown

/**
 * Starts the replicas, and resolves with the ticks of the first three runs. `onTestFinished` is that of the test's context: the
 * global one may belong to the other test, which runs at the same time, and would end these replicas with it.
 */
async function threeRuns(start: Start, { onTestFinished }: TestContext): Promise<string[]> {
  const engine = new MemoryEngine()
  const runs: string[] = []
  const three = Promise.withResolvers<void>()
  for (const holder of ['A', 'B']) {
    const locker = createLocker(memory({ engine }), { holder })
    const ticks = tickRunner(locker, { name: 'report' }, ({ tick, lease }) => {
      expect(lease.fence.name).toBe('report')
      runs.push(tick.id)
      if (runs.length === 3) three.resolve()
    })
    const stop = start(ticks)
    onTestFinished(async () => {
      await stop()
      await ticks.close()
      await locker.close()
    })
  }
  await three.promise
  return runs
}

test.concurrent.for<[string, Start]>([
  [
    'node-cron',
    (ticks) => {
      const task = nodeCron(EVERY_SECOND, (context) => ticks.run(tickOfNodeCron(context)), {
        timezone: 'Europe/Berlin',
      })
      return () => task.destroy()
    },
  ],
  [
    'croner',
    (ticks) => {
      const job = new Cron(EVERY_SECOND, { timezone: 'Europe/Berlin' }, async (self) => {
        await ticks.run(tickOfCroner(self))
      })
      return () => job.stop()
    },
  ],
])('%s calls for scheduled times, and each runs on one replica', async ([, start], context) => {
  const before = Date.now()
  const runs = await threeRuns(start, context)
  expect(new Set(runs).size).toBe(3)
  expect([...runs].sort()).toEqual(runs)
  for (const run of runs) {
    expect(run).toMatch(/:\d\d\.000Z$/)
    expect(Math.abs(Date.parse(run) - before)).toBeLessThan(60_000)
  }
})

test('the tick of a croner job is the scheduled time, however late it fires', () => {
  const cron = new Cron('0 3 * * *', { timezone: 'Europe/Berlin' })
  const fired = (at: string) =>
    tickOfCroner({ currentRun: () => new Date(at), nextRun: (after) => cron.nextRun(after) }).toISOString()
  expect(fired('2026-11-14T02:00:00.004Z')).toBe('2026-11-14T02:00:00.000Z')
  expect(fired('2026-11-14T02:00:00.000Z')).toBe('2026-11-14T02:00:00.000Z')
  expect(fired('2026-11-14T19:00:00.000Z')).toBe('2026-11-14T02:00:00.000Z')
  expect(() => tickOfCroner(cron)).toThrow(/has not fired/)
})
