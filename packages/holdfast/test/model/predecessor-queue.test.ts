import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import type { StoreBreak, StoreKind } from '../simulated-store.ts'
import { faultyCommands, peacefulCommands, type QueueCommand } from './queue/commands.ts'
import { QueueWorld } from './queue/world.ts'
import { Runs } from './runs.ts'

const RUNS = 300
const kinds: readonly StoreKind[] = ['ranges', 'lists']
const kindOfStore = fc.constantFrom(...kinds)

async function playAll(commands: readonly QueueCommand[], kind: StoreKind, runs?: Runs, broken?: StoreBreak) {
  const world = new QueueWorld(kind, broken)
  await world.play(commands, runs)
  await world.quiesce()
}

describe('model: predecessor queues on a simulated store', () => {
  test('G1 G2 G6 G8 G10 hold in every order of events, and no keep-alive is needed while nothing is lost', {
    timeout: 120_000,
  }, async () => {
    const runs = new Runs('predecessor queues, nothing lost')
    await fc.assert(
      fc.asyncProperty(peacefulCommands, kindOfStore, (commands, kind) => playAll(commands, kind, runs)),
      { numRuns: RUNS, seed: runs.seed },
    )
    runs.expectAtLeast({ runs: RUNS, perRun: 30, ofEachKind: 50 })
  })

  test('G1 G2 G6 G8 G10 hold when requests, replies and wake-ups are lost', {
    timeout: 120_000,
  }, async () => {
    const runs = new Runs('predecessor queues under faults')
    await fc.assert(
      fc.asyncProperty(faultyCommands, kindOfStore, (commands, kind) => playAll(commands, kind, runs)),
      { numRuns: RUNS, seed: runs.seed },
    )
    runs.expectAtLeast({ runs: RUNS, perRun: 30, ofEachKind: 50 })
  })

  const breaks: readonly [StoreBreak, StoreKind, noticedAs: RegExp][] = [
    ['grants without the check', 'ranges', /G[18] /],
    ['token drawn at join', 'lists', /G2 /],
    ['watches from now on', 'ranges', /G10 /],
  ]
  for (const [broken, kind, noticedAs] of breaks)
    test(`notices a planted break: ${broken}`, async () => {
      const { failed, errorInstance, numRuns } = await fc.check(
        fc.asyncProperty(peacefulCommands, (commands) => playAll(commands, kind, undefined, broken)),
        { numRuns: RUNS, seed: 1, endOnFailure: true },
      )
      assert(failed, 'not noticed')
      assert.match(String(errorInstance), noticedAs, `after ${numRuns} runs`)
    })
})
