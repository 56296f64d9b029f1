/** One rule that every guard keeps, as data: to be run by a test runner, by a tool, or by a test of the suite. */
import { GuardStage } from './stage.ts'
import type { GuardWorld } from './world.ts'

export interface GuardCase {
  /** Stable: `D17`. Never given to another case. */
  readonly rule: string
  /** A sentence, with the numbers of the guarantees and traps that it shows: `T40 a read counts …`. */
  readonly title: string
  readonly topic: string
  /** Rejects if the rule is broken. */
  run(world: GuardWorld<unknown>): Promise<void>
}

export interface GuardCaseBody {
  readonly rule: string
  readonly title: string
  readonly play: (stage: GuardStage) => Promise<void>
}

/** The cases of one topic. */
export function guardTopic(name: string, bodies: readonly GuardCaseBody[]): readonly GuardCase[] {
  return bodies.map(({ rule, title, play }) => ({
    rule,
    title,
    topic: name,
    run: (world) => play(new GuardStage(world)),
  }))
}
