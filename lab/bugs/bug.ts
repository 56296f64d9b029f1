/** A bug that really happened to somebody, as a change to a copy of our sources, and what must notice it. */
import type { Focus } from '../sim/run.ts'

export interface Edit {
  /** From the root of the repository: a source of the library, or the simulated engine or backend. */
  readonly file: string
  /** Must occur in the file exactly once, so that the bank cannot rot unnoticed. */
  readonly find: string
  readonly replaceBy: string
}

export interface PlantedBug {
  /** `T31-engine`: the number of the trap or the guarantee, and what tells two of one number apart. */
  readonly id: string
  readonly what: string
  /** Where it happened in the world: what docs/traps.md says, and nothing that it does not. */
  readonly where: string
  readonly edits: readonly Edit[]
  /** Why more than one change was needed, or whatever else a reader should know. */
  readonly note?: string
  /** Where the seeds' own choice of faults would take long to find it: what to look at. */
  readonly focus?: Focus
  readonly caughtBy: 'simulation' | 'conformance' | 'nothing'
  /** Which rule of the simulation must be the first to notice, for bugs that are there to show that it can. */
  readonly rule?: string
  /** For the simulation: it must be caught within this many seeds, counted from 1. */
  readonly maxSeeds: number
}

/** For traps that name no library or service. */
export const noCase = 'no case on record'

export const library = 'packages/holdfast/src'
export const base = `${library}/base`
export const locker = `${library}/locker`
export const sim = 'lab/sim'
