/**
 * A bug for each checker that reads the history of a run: so that it is known to notice by itself. The run's own checks
 * would be quicker, so they are told to say nothing.
 */
import { noCase, type SourceBug, sim } from '../bug.ts'
import { engineBugs } from './engines.ts'

const engine = `${sim}/engine/engine.ts`

const silence = {
  file: `${sim}/world.ts`,
  find: '    if (this.violation !== null) return\n    this.violation = {',
  replaceBy:
    "    if (this.violation !== null || !rule.startsWith('history ')) return\n    this.violation = {",
}

function silently(like: string): Required<Pick<SourceBug, 'where' | 'edits' | 'note'>> {
  const bug = engineBugs.find(({ id }) => id === like)
  if (bug === undefined) throw new Error(`the bank has no ${like}`)
  return {
    where: bug.where ?? noCase,
    edits: [...bug.edits, silence],
    note: `${like} once more, with the checks silenced that run along`,
  }
}

const reentrant = silently('T70-re-entrant')

export const historyBugs: readonly SourceBug[] = [
  {
    id: 'G1-history',
    what: 'two tasks of one process both hold, and only the history shows it',
    ...reentrant,
    foundBy: { simulation: { seeds: 40, rule: 'history G1' } },
  },
  {
    id: 'G2-history',
    what: 'a later holder has a lower token, and only the history shows it',
    ...silently('T37-token-apart'),
    foundBy: { simulation: { seeds: 60, rule: 'history G2' } },
  },
  {
    id: 'G5-history',
    what: 'the guard accepts an older token, and only the history shows it',
    ...silently('T41-older-token'),
    foundBy: { simulation: { seeds: 200, rule: 'history G5' } },
  },
  {
    id: 'G7-history',
    what: 'a release deletes the name’s lock, also that of another holder, and only the history shows it',
    ...silently('T46-no-owner-check'),
    foundBy: { simulation: { seeds: 100, rule: 'history G7' } },
  },
  {
    id: 'G8-history',
    what: 'the last waiter is served first',
    where: noCase,
    edits: [
      {
        file: engine,
        find: "this.#journal.assign(name, 'line', [...name.line, claim])",
        replaceBy: "this.#journal.assign(name, 'line', [claim, ...name.line])",
      },
      silence,
    ],
    foundBy: { simulation: { seeds: 100, rule: 'history G8' } },
  },
  {
    id: 'G13-history',
    what: 'a holder is judged by a TTL shorter than its own, and only the history shows it',
    ...silently('T5-takers-ttl'),
    foundBy: { simulation: { seeds: 60, rule: 'history G13' } },
  },
  {
    id: 'G1-linearizability',
    what: 'two tasks of one process both hold, and only the order of what clients saw shows it',
    where: reentrant.where,
    edits: [
      ...reentrant.edits,
      {
        file: `${sim}/run.ts`,
        find: "['G1', 'G2', 'G5', 'G7', 'G8', 'G13', 'linearizability']",
        replaceBy: "['linearizability']",
      },
    ],
    note: 'T70-re-entrant once more, with all other checks silenced',
    foundBy: { simulation: { seeds: 40, rule: 'history linearizability' } },
  },
]
