/** An entry of the bank: what is changed, and the checks that must notice it. A check that notices nothing is worth nothing. */
import type { Wrap } from '../../packages/holdfast/src/testing/conformance/clients.ts'
import type { World } from '../../packages/holdfast/src/testing/describe-backend.ts'
import type { ChangeGuard } from '../../packages/holdfast/test/memory-guard-world.ts'
import type { Planted as ModelFaults } from '../../packages/holdfast/test/model/locker/machine.ts'
import type { Focus } from '../sim/run.ts'

/** Each check that is named here runs with the bug planted, and must notice it. */
export interface FoundBy {
  /** The simulation, within so many seeds, counted from 1. `rule`: what must be the first to notice. */
  readonly simulation?: {
    readonly seeds: number
    readonly rule?: string
    /** Where the seeds' own choice of faults would take long to find it: what to look at. */
    readonly focus?: Focus
  }
  /** Cases of the conformance suite: rules (`C28`), or numbers that one of the red cases must have in its title (`G1`). */
  readonly suite?: string
  /**
   * A test file, seen from `packages/holdfast/src`, in a test that has this guarantee's number, or these words, in its name. Suites
   * of recipes run on memory only. With `on` the test has real servers of this engine, and only the tests of this name are run.
   */
  readonly units?: { readonly file: string; readonly name: string; readonly on?: 'zookeeper' | 'consul' }
  /** The comparison of an engine with the model, on random calls. */
  readonly engineModel?: true
  /** The model of lockers under faults: behind the engine or behind the network, and how the report calls it. */
  readonly lockerModel?: { readonly at?: 'engine' | 'client'; readonly as: RegExp }
  /** Cases of the suite for guards. */
  readonly guardSuite?: string
  /** The file of a test that plants it itself, by its id. */
  readonly test?: string
}

/** Every entry has a sentence that says what is wrong, and the checks that must notice. The rest says what is changed. */
interface Planted {
  readonly what: string
  readonly foundBy: FoundBy
}

/** Text of a source file that is replaced. */
export interface Edit {
  /** From the root of the repository: a source of the library, or the simulated engine or backend. */
  readonly file: string
  /** Must occur exactly once, so that the bank cannot rot unnoticed. */
  readonly find: string
  readonly replaceBy: string
}

/** A careless change to the sources, or a bug that has happened elsewhere as a change to our sources. */
export interface SourceBug extends Planted {
  /** `T31-engine`: the number of the trap or the guarantee that it breaks, and what tells two of one number apart. */
  readonly id: string
  /** Where it happened in the world: what docs/traps.md says, and nothing that it does not. */
  readonly where?: string
  readonly edits: readonly Edit[]
  /** Why more than one change was needed, or whatever else a reader should know. */
  readonly note?: string
}

/** A change to the schema in PostgreSQL. It has a name of its own, so that a test can have it beside the sound one. */
export interface SchemaBug extends SourceBug {
  readonly schema: string
}

/** A backend, or what stands around it, with one fault. The rules that notice say what it breaks. */
export interface BackendBug extends Planted {
  /** The fault around a client of any engine. Called once a world: what it remembers is shared by that world's clients. */
  readonly wrap?: () => Wrap<'fenced'>
  /** The world in which the suite must notice it. */
  readonly createWorld?: () => Promise<World>
  /** Faults of the model of lockers only. */
  readonly inModel?: Pick<ModelFaults, 'locker' | 'engineRate'>
}

/** A guard with one fault. */
export interface GuardBug extends Planted {
  readonly changeGuard: ChangeGuard
}

export type PlantedBug = SourceBug | SchemaBug | BackendBug | GuardBug

/** The text with these changes made. An edit that does not fit is an error. */
export function edited(text: string, edits: readonly Edit[]): string {
  return edits.reduce((changed, { file, find, replaceBy }) => {
    if (changed.split(find).length !== 2)
      throw new Error(`the text to replace is not exactly once in ${file}: ${find}`)
    return changed.replace(find, () => replaceBy)
  }, text)
}

/** For traps that name no library or service. */
export const noCase = 'no case on record'

export const library = 'packages/holdfast/src'
export const base = `${library}/base`
export const locker = `${library}/locker`
export const sim = 'lab/sim'
