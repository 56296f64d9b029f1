/** A recipe's benchmark: a file in this folder for each recipe, which exports a `bench`. */
import type { Row } from '../report.ts'

export interface RecipeEngine {
  readonly name: string
  /** For `openLocker`, in this and in other processes. All of them meet, and tokens are issued. */
  readonly url: string
}

/** One table. */
export interface Figures {
  readonly title: string
  /** The first row has the headings. */
  readonly rows: readonly Row[]
  /** Sentences that a reader of the figures must know. */
  readonly remarks: readonly string[]
}

export interface RecipeBench {
  /** Tells `progress` what is being measured. Throws if what it measured breaks a promise of the recipe. */
  run(engine: RecipeEngine, progress: (what: string) => void): Promise<readonly Figures[]>
}

/** Heading and row of a distribution, in milliseconds. */
export const distributionHeadings: Row = ['', 'count', 'p50', 'p90', 'p99', 'max']

export function distributionRow(name: string, samplesMs: readonly number[]): Row {
  const sorted = [...samplesMs].sort((a, b) => a - b)
  const at = (share: number) =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN
  const shown = [at(0.5), at(0.9), at(0.99), at(1)].map((ms) => ms.toFixed(ms < 10 ? 1 : 0))
  return [name, String(sorted.length), ...shown]
}
