import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, describe, test } from 'vitest'
import { fence } from '../../../../../test/guard-table.ts'
import { newSeed } from '../../../../../test/seed.ts'
import { isHoldfastError } from '../../../../base/errors.ts'
import { makeFence } from '../../../../base/fence.ts'
import { checkGuardOptions } from '../../../../guards/settings.ts'
import { createFakeClock, type FakeClock } from '../../../../testing/fake-clock.ts'
import { seededRandom } from '../../../../testing/seeded-random.ts'
import { Gate, Quarantined } from './gate.ts'

const folder = mkdtempSync(join(tmpdir(), 'holdfast-gate-'))
afterAll(() => rmSync(folder, { recursive: true }))

const LIMITS = { limitMs: 1_000, quarantineMs: 2_000 }

function newGate(clock: FakeClock = createFakeClock(), database = new DatabaseSync(':memory:')) {
  return { clock, database, gate: new Gate(database, checkGuardOptions({ name: 'proxy', clock }), LIMITS) }
}

async function stateOf(promise: Promise<unknown>): Promise<unknown> {
  const pending = new Promise((resolve) => setImmediate(() => setImmediate(() => resolve('waits'))))
  return Promise.race([
    pending,
    promise.then(
      () => 'passed',
      (error) => (isHoldfastError(error) ? error.code : error),
    ),
  ])
}

const shared = (token: bigint) =>
  makeFence({ issuer: 'i', name: 'n', mode: 'shared', token, grant: `g${token}` })

describe('the gate of the proxy', () => {
  test('drain: a newer token waits for the answers to older ones, which are refused meanwhile', async () => {
    const { gate } = newGate()
    const [first, second] = [await gate.enter(fence(1n)), await gate.enter(fence(1n))]
    const newer = gate.enter(fence(2n))
    assert.equal(await stateOf(newer), 'waits')
    assert.equal(await stateOf(gate.enter(fence(1n))), 'FENCE_STALE')
    first.end('over')
    assert.equal(await stateOf(newer), 'waits')
    second.end('over')
    assert.equal(await stateOf(newer), 'passed')
  })

  test('a waiting request that is overtaken is refused at once', async () => {
    const { gate } = newGate()
    const first = await gate.enter(fence(1n))
    const [second, third] = [gate.enter(fence(2n)), gate.enter(fence(3n))]
    assert.equal(await stateOf(second), 'FENCE_STALE')
    assert.equal(await stateOf(third), 'waits')
    first.end('over')
    assert.equal(await stateOf(third), 'passed')
  })

  test('quarantine: after a request without an answer, newer tokens are refused until limit and quarantine are over', async () => {
    const { gate, clock } = newGate()
    const first = await gate.enter(fence(1n))
    const waiting = gate.enter(fence(2n))
    await clock.advance(1_000)
    first.end('unknown')
    const refusal = await stateOf(waiting)
    assert.ok(refusal instanceof Quarantined)
    assert.equal(refusal.leftMs, 3_000)
    await clock.advance(2_999)
    assert.ok((await stateOf(gate.enter(fence(3n)))) instanceof Quarantined)
    assert.equal(await stateOf(gate.enter(fence(1n))), 'FENCE_STALE')
    await clock.advance(1)
    assert.equal(await stateOf(gate.enter(fence(3n))), 'passed')
  })

  test('a request that waits is refused as soon as the one before it is given up', async () => {
    const { gate } = newGate()
    const older = await gate.enter(fence(1n))
    const waiting = gate.enter(fence(2n))
    assert.equal(await stateOf(waiting), 'waits')
    older.end('unknown')
    assert.ok((await stateOf(waiting)) instanceof Quarantined)
  })

  test('T95 quarantine counts from when the proxy gives up: it may have been paused before it forwarded', async () => {
    const { gate, clock } = newGate()
    const first = await gate.enter(fence(1n))
    await clock.advance(100_000)
    first.end('unknown')
    await clock.advance(2_999)
    assert.ok((await stateOf(gate.enter(fence(2n)))) instanceof Quarantined)
    await clock.advance(1)
    assert.equal(await stateOf(gate.enter(fence(2n))), 'passed')
  })

  test('the holder of the request without an answer goes on, and other names are not concerned', async () => {
    const { gate } = newGate()
    const first = await gate.enter(fence(1n))
    first.end('unknown')
    assert.equal(await stateOf(gate.enter(fence(1n))), 'passed')
    assert.equal(await stateOf(gate.enter(fence(2n, 'm'))), 'passed')
  })

  test('shared holders do not wait for each other, and exclusive ones wait for all', async () => {
    const { gate } = newGate()
    const readers = [await gate.enter(shared(2n)), await gate.enter(shared(1n)), await gate.enter(shared(3n))]
    const writer = gate.enter(fence(4n))
    assert.equal(await stateOf(writer), 'waits')
    for (const reader of readers) reader.end('over')
    assert.equal(await stateOf(writer), 'passed')
    assert.equal(await stateOf(gate.enter(shared(5n))), 'waits')
  })

  test('after a restart what was in flight counts as not answered, and what was over does not', async () => {
    const path = join(folder, 'restart.db')
    const before = newGate(undefined, new DatabaseSync(path))
    const over = await before.gate.enter(fence(1n, 'over'))
    over.end('over')
    await before.gate.enter(fence(1n))
    before.database.close()
    const { gate, clock } = newGate(undefined, new DatabaseSync(path))
    assert.equal(await stateOf(gate.enter(fence(2n, 'over'))), 'passed')
    assert.ok((await stateOf(gate.enter(fence(2n)))) instanceof Quarantined)
    await clock.advance(3_000)
    assert.equal(await stateOf(gate.enter(fence(2n))), 'passed')
    assert.equal(await stateOf(gate.enter(fence(1n))), 'FENCE_STALE')
  })
})

test('a disk that is full is told as that, also where SQLite has rolled back by itself', async () => {
  /** Some errors of the system undo the transaction at once. */
  class FullDisk extends DatabaseSync {
    isFull = false
    override exec(sql: string): void {
      super.exec(this.isFull && sql === 'COMMIT' ? 'ROLLBACK' : sql)
      if (this.isFull && sql === 'COMMIT') throw new Error('database or disk is full')
    }
  }
  const database = new FullDisk(':memory:')
  const { gate } = newGate(undefined, database)
  database.isFull = true
  const full = { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied', message: /disk is full/ }
  await assert.rejects(gate.enter(fence(1n)), full)
  database.isFull = false
  assert.equal(await stateOf(gate.enter(fence(1n))), 'passed')
})

const SCHEDULES = Number(process.env.HOLDFAST_SCHEDULES ?? 20_000)

/** A service that takes effect some time after a request has come, and at the latest when limit and quarantine are over. */
interface Plan {
  readonly arrivesMs: number
  readonly token: bigint
  /** Between the gate and the forwarding. */
  readonly pauseMs: number
  readonly effectMs: number
  /** Never: it takes effect without an answer, and the proxy gives up at the limit. */
  readonly answersMs: number
}

type Enter = (plan: Plan, name: string) => Promise<{ end(how: 'over' | 'unknown'): void }>

/** How many of the schedules have an effect of an older token after one of a newer. All run at once, each on a name of its own. */
async function lostSchedules(
  seed: number,
  clock: { nowMs: number },
  enter: Enter,
): Promise<{ lost: number; effects: number }> {
  const random = seededRandom(seed)
  const below = (limit: number) => Math.floor(random.fraction() * limit)
  const due = new Map<number, (() => void)[]>()
  const at = (ms: number, act: () => void) => due.set(ms, [...(due.get(ms) ?? []), act])
  const newest = new Map<string, bigint>()
  const lost = new Set<string>()
  let effects = 0
  for (let schedule = 0; schedule < SCHEDULES; schedule++) {
    const name = `n${schedule}`
    for (let request = 0; request < 4; request++) {
      const hangs = below(5) === 0
      const effectMs = hangs ? below(301) : below(60)
      const answersMs = hangs ? Number.POSITIVE_INFINITY : effectMs + below(60)
      const pauseMs = below(3) === 0 ? below(400) : 0
      const plan = { arrivesMs: below(500), token: BigInt(1 + below(4)), pauseMs, effectMs, answersMs }
      at(plan.arrivesMs, () => {
        enter(plan, name).then(
          (passage) => {
            const sentMs = clock.nowMs + pauseMs
            at(sentMs + effectMs, () => {
              effects++
              if ((newest.get(name) ?? 0n) > plan.token) lost.add(name)
              else newest.set(name, plan.token)
            })
            at(sentMs + Math.min(answersMs, 100), () => passage.end(answersMs <= 100 ? 'over' : 'unknown'))
          },
          (error) =>
            assert.ok(error instanceof Quarantined || isHoldfastError(error, 'FENCE_STALE'), String(error)),
        )
      })
    }
  }
  for (; clock.nowMs < 4_000; clock.nowMs++) {
    // An act may add another for the same moment.
    for (
      let acts = due.get(clock.nowMs);
      acts !== undefined && acts.length > 0;
      acts = due.get(clock.nowMs)
    ) {
      due.delete(clock.nowMs)
      for (const act of acts) act()
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
  return { lost: lost.size, effects }
}

describe(`${SCHEDULES} schedules`, () => {
  const seed = newSeed()
  const clockAt = (clock: { nowMs: number }) => ({ ...createFakeClock(), monotonicMs: () => clock.nowMs })

  test('T95 with drain and quarantine no effect comes after that of a newer token', async () => {
    const clock = { nowMs: 0 }
    const settings = checkGuardOptions({ name: 'proxy', clock: clockAt(clock) })
    const gate = new Gate(new DatabaseSync(':memory:'), settings, { limitMs: 100, quarantineMs: 201 })
    const { lost, effects } = await lostSchedules(seed, clock, ({ token }, name) =>
      gate.enter(fence(token, name)),
    )
    assert.equal(lost, 0, `seed ${seed}`)
    assert.ok(effects > SCHEDULES, `${effects} effects`)
  })

  test('T95 control: a proxy that only records the token loses many', async () => {
    const newest = new Map<string, bigint>()
    const { lost } = await lostSchedules(seed, { nowMs: 0 }, async ({ token }, name) => {
      if ((newest.get(name) ?? 0n) > token) throw new Quarantined(0)
      newest.set(name, token)
      return { end: () => {} }
    })
    assert.ok(lost > SCHEDULES / 10, `seed ${seed}: ${lost} lost`)
  })
})
