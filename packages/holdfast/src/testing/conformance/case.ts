/** One rule that every backend keeps, as data: to be run by a test runner, by a tool, or by a test of the suite. */
import assert from 'node:assert/strict'
import { type Capability, hasCapability, refusals } from './capability.ts'
import { Stage } from './stage.ts'
import type { World } from './world.ts'

export interface BackendCase {
  /** Stable: `C17`. Never given to another case. */
  readonly rule: string
  /** A sentence, with the numbers of the guarantees and traps that it shows: `T31 a keep-alive does not …`. */
  readonly title: string
  readonly topic: string
  readonly needs: readonly Capability[]
  /**
   * The case depends on the client library: on connections, late answers, cancelled calls, closing, unusual values, pushes,
   * or how a server's errors and answers are read. The other cases show rules that the server or core computes.
   */
  readonly touches?: 'client'
  /** Rejects if the rule is broken. `lacks`: what the harness has declared as missing. */
  run(world: World, lacks?: readonly Capability[]): Promise<void>
}

export interface CaseBody {
  readonly rule: string
  readonly title: string
  readonly touches?: 'client'
  readonly needs?: readonly Capability[]
  readonly play: (stage: Stage) => Promise<void>
}

/** The cases of one topic. */
export function topic(name: string, bodies: readonly CaseBody[]): readonly BackendCase[] {
  return bodies.map(({ needs = [], play, ...body }) => ({
    ...body,
    topic: name,
    needs,
    async run(world, lacks = []) {
      const stage = new Stage(world)
      try {
        const missing = await missingOf(stage, needs, lacks)
        if (missing.length === 0) await play(stage)
        for (const capability of missing) await refusals[capability](stage)
      } catch (error) {
        await stage.end().catch(() => {})
        throw error
      }
      await stage.end()
    },
  }))
}

/** Capabilities that the backend lacks, after a check that the harness knows them: nothing is left out silently. */
async function missingOf(
  stage: Stage,
  needs: readonly Capability[],
  lacks: readonly Capability[],
): Promise<readonly Capability[]> {
  if (needs.length === 0) return []
  const backend = await stage.observer()
  for (const capability of needs) {
    const has = hasCapability(backend, capability)
    if (has === undefined) continue
    assert(has || lacks.includes(capability), `the backend has no ${capability}: declare it in 'lacks'`)
    assert(!has || !lacks.includes(capability), `the backend has ${capability}: remove it from 'lacks'`)
  }
  return needs.filter((capability) => lacks.includes(capability))
}
