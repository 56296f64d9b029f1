// A checker for Stryker that lets a random but repeatable sample of the mutants pass. Stryker itself has no sampling. The
// others count as "compile error" in its results, and are left out of the score.

import { createHash } from 'node:crypto'
import type { Checker, CheckResult } from '@stryker-mutator/api/check'
import { CheckStatus } from '@stryker-mutator/api/check'
import type { Mutant } from '@stryker-mutator/api/core'
import { declareFactoryPlugin, PluginKind, tokens } from '@stryker-mutator/api/plugin'

/** `HOLDFAST_MUTANTS`: how many, the seed, and how many of these to leave out, as `2000/1/900`. */
const [size = 0, seed = 0, skip = 0] = (process.env.HOLDFAST_MUTANTS ?? '').split('/').map(Number)

class Sample implements Checker {
  readonly #chosen = new Set<string>()

  async init(): Promise<void> {}

  /** Gets all mutants at once, before any is checked. */
  async group(mutants: Mutant[]): Promise<string[][]> {
    const ranked = mutants.map(({ id, ...mutant }) => ({ id, rank: rankOf(mutant) }))
    ranked.sort((a, b) => (a.rank < b.rank ? -1 : 1))
    for (const { id } of ranked.slice(skip, size)) this.#chosen.add(id)
    return [mutants.map(({ id }) => id)]
  }

  async check(mutants: Mutant[]): Promise<Record<string, CheckResult>> {
    const left: CheckResult = { status: CheckStatus.CompileError, reason: 'not in the sample' }
    const answers = mutants.map(({ id }): [string, CheckResult] => [
      id,
      this.#chosen.has(id) ? { status: CheckStatus.Passed } : left,
    ])
    return Object.fromEntries(answers)
  }
}

/** By the text of the mutant and not by its number, so that a change in one file does not change the sample of the others. */
function rankOf({ fileName, location, mutatorName, replacement }: Omit<Mutant, 'id'>): string {
  const file = fileName.slice(fileName.lastIndexOf('packages/'))
  const text = JSON.stringify([seed, file, location, mutatorName, replacement])
  return createHash('sha256').update(text).digest('hex')
}

const create = () => new Sample()
create.inject = tokens()

export const strykerPlugins = [declareFactoryPlugin(PluginKind.Checker, 'sample', create)]
