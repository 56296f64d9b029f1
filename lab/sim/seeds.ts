/**
 * Seeds beyond the fixed ones of `npm test`. Those of a commit follow from its id, so every commit tries others and a run
 * can be repeated; fresh ones are new each time.
 */
import { spawnSync } from 'node:child_process'
import { randomInt } from 'node:crypto'

export interface SeedRange {
  readonly from: number
  /** Where they come from, for people. */
  readonly origin: string
}

/** Far above the seeds that people type and that `npm test` fixes. Below 2^53 whatever is added. */
const LEAST = 2 ** 32
const MOST = 2 ** 48
/** Used where there is no git, or no commit: an unpacked archive, for one. */
export const withoutCommit: SeedRange = {
  from: 500_000_001,
  origin: 'the constant that stands for an unknown commit',
}

export function seedsOfCommit(folder: string = import.meta.dirname): SeedRange {
  const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: folder, encoding: 'utf8' })
  return status === 0 ? seedsOfCommitId(stdout.trim()) : withoutCommit
}

export function seedsOfCommitId(id: string): SeedRange {
  if (!/^[0-9a-f]{40,64}$/.test(id)) return withoutCommit
  return { from: LEAST + Number.parseInt(id.slice(0, 11), 16), origin: `commit ${id.slice(0, 12)}` }
}

export function freshSeed(): number {
  return randomInt(LEAST, MOST)
}
