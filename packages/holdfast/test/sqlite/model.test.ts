import fc from 'fast-check'
import { describe, test } from 'vitest'
import type { Clock } from '../../src/core/clock.ts'
import { newAttempt } from '../../src/core/ids.ts'
import { LOCK_CAPACITY } from '../../src/spi.ts'
import { seededRandom } from '../../src/testing/seeded-random.ts'
import { Runs } from '../model/runs.ts'
import { spiCommands } from '../model/spi/commands.ts'
import { Comparison } from '../model/spi/comparison.ts'
import { clientsOf, memorySide } from '../model/spi/engines.ts'
import { play } from '../model/spi/play.ts'
import { Side } from '../model/spi/side.ts'
import { SqliteWorld } from './world.ts'

/**
 * When an opening is repeated after the session has expired, an object of the expired session goes on with the new one
 * in the model. Here it stays gone, which is stricter (T31); `describeBackend` covers the repetition itself.
 */
const comparable = spiCommands.map((commands) => commands.filter((command) => command.do !== 'reopen'))

describe('model', () => {
  test('sqlite answers as memory does, whatever is asked in whatever order', async () => {
    const runs = new Runs('sqlite against memory')
    await fc.assert(
      fc.asyncProperty(comparable, async (commands) => {
        await using world = new SqliteWorld()
        const random = seededRandom(1)
        const clock = impatient(world.clock)
        const clients = clientsOf((namespace) => world.open({ namespace, random, clock }))
        await waitForever(world, clock)
        const model = memorySide('memory', world.clock)
        const sides = [new UnorderedSide(model.title, model.clients), new UnorderedSide('sqlite', clients)] as const
        await play(new Comparison(world.clock, sides), commands, runs)
      }),
      { numRuns: 60, seed: runs.seed },
    )
    runs.expectAtLeast({ runs: 60, perRun: 30, ofEachKind: 10 })
  }, 120_000)
})

/**
 * One step may end several claims at once, and so grant several names. In which order it does that is nobody's
 * business, so only the set of all grants is compared; that tokens rise is shown elsewhere.
 */
class UnorderedSide extends Side {
  override get grantOrder(): string[] {
    return super.grantOrder.sort()
  }
}

/**
 * The model acts at the very moment at which something is due; a process that shares a file may learn of it a poll
 * later. Here its timers fire all the time, so that it looks in every moment that the test lets pass.
 */
function impatient(clock: Clock): Clock {
  return {
    monotonicMs: () => clock.monotonicMs(),
    wallMs: () => clock.wallMs(),
    setTimer(_delayMs, fire) {
      const handle = setImmediate(fire)
      return { cancel: () => clearImmediate(handle) }
    },
  }
}

/** As long as anybody waits, in whatever namespace, what is due in the file is done: also for waiters who hung up. */
async function waitForever(world: SqliteWorld, clock: Clock): Promise<void> {
  const client = world.open({ namespace: 'bystander', clock })
  // Nobody holds what it waits for, so it draws no token: the two engines count alike.
  world.sql('INSERT INTO names VALUES (?, ?, ?, NULL, ?)', 'bystander', 'closed', LOCK_CAPACITY, 1e15)
  const call = { signal: new AbortController().signal }
  const id = client.random.id()
  const session = await client.openSession({ id, ttlMs: 86_400_000, holder: 'bystander' }, call)
  const attempt = newAttempt(client.random)
  const [weight, capacity] = [LOCK_CAPACITY, LOCK_CAPACITY]
  const request = { name: 'closed', attempt, mode: 'exclusive', weight, capacity, lockDelayMs: 0 } as const
  session.enqueue?.(request, call).catch(() => {})
}
