/** Bugs of the election: each breaks one promise, and the workload `election` of the simulation must notice. */
import { library, type SourceBug } from '../bug.ts'

const recipe = `${library}/recipes/election.ts`
const leader = `${library}/recipes/election/leader.ts`
const focus = { workload: 'election' } as const

const runsWork = '      if (!term.signal.aborted) await work(term)\n'
const unless = (signal: string, condition = '') =>
  `      if (!term.signal.aborted) await Promise.race([work(term), new Promise<void>((end) => onAborted(${signal}, () => ${condition}end()))])\n`

export const electionBugs: readonly SourceBug[] = [
  {
    id: 'T53-election-early',
    what: 'leadership is given up as soon as the term is told to end, at resign and at stop',
    edits: [
      {
        file: recipe,
        find: runsWork,
        replaceBy: unless('ending.signal', "ending.signal.reason.reason !== 'closed' && "),
      },
    ],
    foundBy: { simulation: { seeds: 20, rule: 'T53', focus: { ...focus, faults: [] } } },
  },
  {
    id: 'T53-election-second-term',
    what: 'after its time has run out there is a new campaign, while the old term still runs',
    edits: [
      {
        file: recipe,
        find: runsWork,
        replaceBy: unless('lease.signal', "lease.signal.reason.reason !== 'closed' && "),
      },
      { file: recipe, find: '      this.#running = undefined\n', replaceBy: '' },
    ],
    note: 'planted together with a health check that goes on after the term, which alone would notice',
    foundBy: { simulation: { seeds: 100, rule: 'one-term', focus } },
  },
  {
    id: 'G3-election-untold',
    what: 'the term is not told that its lease is lost',
    edits: [{ file: recipe, find: '      ending.abort(lease.signal.reason)\n', replaceBy: '' }],
    foundBy: { simulation: { seeds: 50, rule: 'G3', focus } },
  },
  {
    id: 'G3-election-healthy',
    what: 'the health check finds nothing when a term outlives its lease',
    edits: [
      {
        file: recipe,
        find: 'if (lostForMs <= graceMs) return',
        replaceBy: 'if (lostForMs > graceMs) return',
      },
    ],
    foundBy: { simulation: { seeds: 100, rule: 'G3', focus } },
  },
  {
    id: 'T87-election-hot-loop',
    what: 'a term that ends at once is followed by the next campaign without a pause',
    edits: [{ file: recipe, find: 'lastedMs >= SHORT_TERM_MS', replaceBy: 'lastedMs >= 0' }],
    foundBy: { simulation: { seeds: 50, rule: 'T32', focus } },
  },
  {
    id: 'G10-election-ends',
    what: 'a lost lease ends serve, and there is no next campaign',
    edits: [
      {
        file: recipe,
        find: "if (!isCancelled && !isHoldfastError(error, 'LEASE_LOST')) throw error",
        replaceBy: 'if (!isCancelled) throw error',
      },
    ],
    foundBy: { simulation: { seeds: 50, rule: 'G11', focus } },
  },
  {
    id: 'G1-election-waiter',
    what: 'an observer takes a waiter for the leader',
    edits: [
      {
        file: leader,
        find: "kind === 'waiting' || kind === 'gave-up'",
        replaceBy: "kind === 'gave-up'",
      },
      {
        file: leader,
        find: "if (kind === 'acquired') return",
        replaceBy: "if (kind === 'acquired' || kind === 'waiting') return",
      },
    ],
    foundBy: { simulation: { seeds: 20, rule: 'leader', focus } },
  },
  {
    id: 'T48-election-value',
    what: 'a leader is shown with the value that an earlier one proclaimed',
    edits: [
      {
        file: leader,
        find: 'proclamation?.id === id ? proclamation.value : undefined',
        replaceBy: 'proclamation?.value',
      },
    ],
    foundBy: { simulation: { seeds: 20, rule: 'leader', focus } },
  },
  {
    id: 'G10-election-missed',
    what: 'an observer that lost the engine goes on without looking again',
    edits: [
      {
        file: leader,
        find: '{ cursor: FROM_NOW, signal }',
        replaceBy: '{ ...(this.#told === undefined && { cursor: FROM_NOW }), signal }',
      },
    ],
    foundBy: { simulation: { seeds: 400, rule: 'G10', focus: { ...focus, mode: 'liveness' } } },
  },
]
