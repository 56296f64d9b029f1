/** Counts what a property test has done: the number of runs and commands is part of what is promised. */
import assert from 'node:assert/strict'
import { newSeed } from '../seed.ts'

export class Runs {
  readonly seed = newSeed()
  readonly #title: string
  readonly #byKind = new Map<string, number>()
  #runs = 0
  #commands = 0

  constructor(title: string) {
    this.#title = title
  }

  begin(): void {
    this.#runs++
  }

  count(kind: string): void {
    this.#commands++
    this.#byKind.set(kind, (this.#byKind.get(kind) ?? 0) + 1)
  }

  get perRun(): number {
    return this.#commands / Math.max(1, this.#runs)
  }

  report(): string {
    const kinds = [...this.#byKind].sort(([, a], [, b]) => b - a).map(([kind, times]) => `${kind} ${times}`)
    return (
      `${this.#title}: seed ${this.seed}, ${this.#runs} runs, ${this.#commands} commands ` +
      `(${this.perRun.toFixed(1)} per run)\n  ${kinds.join(', ')}`
    )
  }

  /** A generator that produced less than was promised would pass silently. */
  expectAtLeast(floor: {
    readonly runs: number
    readonly perRun: number
    readonly ofEachKind: number
  }): void {
    console.log(this.report())
    assert(this.#runs >= floor.runs, `${this.#runs} runs, promised were ${floor.runs}`)
    assert(this.perRun >= floor.perRun, `${this.perRun} commands per run, promised were ${floor.perRun}`)
    for (const [kind, times] of this.#byKind) assert(times >= floor.ofEachKind, `${kind} only ${times} times`)
  }
}
