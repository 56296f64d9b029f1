/** The simulation as part of `npm test`: a batch of seeds, whether it repeats itself, and whether it can fail. */
import { beforeAll, describe, expect, test } from 'vitest'
import { catchBug } from '../bugs/catching.ts'
import { sourceBugs } from '../bugs/sources/index.ts'
import { type BatchResult, runBatch } from './batch.ts'
import { describeTotals, notCovered } from './coverage.ts'
import { planFor } from './faults.ts'
import { explain } from './report.ts'
import { runSeed } from './run.ts'
import { seedsOfCommit } from './seeds.ts'
import { settingsFor } from './settings.ts'
import { planText, readPlanText } from './shrink.ts'

const SEEDS = 2_000
/** As many again as a quarter of them, others with every commit. */
const SEEDS_OF_COMMIT = 500

/** Every rule that a run can break, with what it says when it is kept. */
const rules: readonly (readonly [rules: readonly string[], title: string])[] = [
  [['G1'], 'G1 T45 T70 the weights of the holders never exceed the capacity, and no grant is in two hands'],
  [['G2'], 'G2 T37 T38 tokens increase from grant to grant, through crashes that lose what was not synced'],
  [
    ['G3'],
    'G3 T1 T2 T3 T4 T8 T16 T64 T65 no lease believes when the engine has let it expire, and its signal says so in time',
  ],
  [['G4'], 'G4 what is lost or released never comes back'],
  [
    ['G5'],
    'G5 T40 T41 no update is lost behind the guard, and no reader passes before and after a writer, also where two believe at once',
  ],
  [['G6'], 'G6 T14 T15 T25 T29 T73 the engine keeps nothing that nobody wants'],
  [['T29'], 'T29 a closed locker leaves no timer, and none keeps a process alive that waits for nothing'],
  [['G7'], 'G7 T46 nobody ends what another holds'],
  [
    ['G10', 'T20'],
    'G10 T18 T19 T20 T72 when the faults are over everybody is served, and every locker closes',
  ],
  [['G11'], 'G11 T47 every failure is a typed error, and withLease passes on what its body did'],
  [['G13'], 'G13 T5 T66 the engine ends nothing before its time'],
  [['T6'], 'T6 T17 T54 no lease is over when it is handed out'],
  [['T12'], 'T12 a renewal without an answer is not a loss'],
  [
    ['T23'],
    'T23 a name stays closed for the lock-delay of who ran out of time, and for what a holder holds at least',
  ],
  [['max-hold'], 'a lease is held no longer than its maxHoldMs'],
  [['T22'], 'T22 concurrent acquires share the opening of a session'],
  [['T27'], 'T27 an acquire that is cancelled ends at once'],
  [['T30'], 'T30 renewals go on after failures, and no rejection is left unhandled'],
  [['T32'], 'T32 nothing runs hot in any second, also where failures come at once'],
  [['T34'], 'T34 what was taken away by force is noticed'],
  [['T53'], 'T53 a closing locker gives nothing away while a body runs'],
  [['T54'], 'T54 several names have one deadline'],
  [
    ['G1', 'G2', 'G5', 'G7', 'G8', 'G13', 'linearizability'].map((check) => `history ${check}`),
    'G1 G2 G5 G7 G8 G13 one history in eight is read by the checkers, which accept it, and is linearizable',
  ],
]

describe(`${SEEDS} seeds`, () => {
  let batch: BatchResult

  beforeAll(async () => {
    batch = await runBatch({ from: 1, seeds: SEEDS, historyEvery: 8 })
    console.log(describeTotals(batch))
  }, 600_000)

  test.each(rules)('%j: %s', async (broken) => {
    const [first] = batch.failed.filter(({ violation }) => broken.includes(violation?.rule ?? ''))
    expect(first === undefined ? '' : await explain(first, 40)).toBe('')
  })

  test('nothing else breaks', () => {
    const known = rules.flatMap(([broken]) => broken)
    expect(batch.failed.filter(({ violation }) => !known.includes(violation?.rule ?? ''))).toEqual([])
    expect(batch.runs).toBe(SEEDS)
  })

  test('every kind of fault has struck, every path was taken, and the unguarded control lost updates', () => {
    expect(notCovered(batch)).toEqual([])
  })
})

test(`${SEEDS_OF_COMMIT} seeds that follow from the commit break no rule`, { timeout: 600_000 }, async () => {
  const { from, origin } = seedsOfCommit()
  const command = `npm run sim -- --from ${from} --seeds ${SEEDS_OF_COMMIT}`
  console.log(`Seeds of ${origin}: ${command}`)
  const { failed } = await runBatch({ from, seeds: SEEDS_OF_COMMIT, historyEvery: 8 })
  const seeds = failed.map(({ seed, violation }) => `${seed} breaks ${violation?.rule}`)
  const [first] = failed
  expect(first === undefined ? '' : `${command}\n${seeds.join('\n')}\n\n${await explain(first, 40)}`).toBe('')
})

/** Bytes in use when nothing can be collected any more. */
async function heapBytes(): Promise<number> {
  for (let round = 0; round < 5; round++) {
    globalThis.gc?.()
    await new Promise((resolve) => setImmediate(resolve))
  }
  return process.memoryUsage().heapUsed
}

test('many seeds need no more memory than a few', async () => {
  const growth: number[] = []
  let seed = 1
  for (const seeds of [20, 40]) {
    const beforeBytes = await heapBytes()
    for (const until = seed + seeds; seed < until; seed++) await runSeed(seed)
    growth.push(((await heapBytes()) - beforeBytes) / seeds)
  }
  // The first ones also load and compile code. A world that is kept has several hundred kilobytes.
  expect(growth[1]).toBeLessThan(100_000)
})

describe('a seed', () => {
  test('repeats itself exactly, and no two are alike', async () => {
    const hashes = new Set<string>()
    for (const seed of [1, 2, 3, 4, 5, 6]) {
      const [one, other] = [await runSeed(seed), await runSeed(seed, { keepLines: true })]
      expect(other.traceHash).toBe(one.traceHash)
      hashes.add(one.traceHash)
    }
    expect(hashes.size).toBe(6)
  })

  test('goes on as before when a fault is taken out that has not begun', async () => {
    const whole = planFor(settingsFor(5))
    const last = whole.at(-1)
    const [all, without] = [
      await runSeed(5, { keepLines: true }),
      await runSeed(5, { plan: whole.slice(0, -1), keepLines: true }),
    ]
    const before = (lines: readonly string[]) =>
      lines.filter((line) => Number.parseFloat(line) * 1_000 < (last?.atMs ?? 0))
    expect(before(without.lines)).toEqual(before(all.lines))
    expect(readPlanText(planText(whole, whole), whole)).toEqual(whole)
  })
})

// Each showed what no other had: T84, a renewal that outlived its caller (T29, late renewals), and checks that misjudged a run.
test.each([9003744, 20261116003787, 20261117014992, 20261117005603, 20261117020862, 13452845390806])(
  'seed %d, which broke something once, breaks nothing',
  async (seed) => {
    const { violation } = await runSeed(seed, { checkHistory: true })
    expect(violation).toBeNull()
  },
)

test('a planted bug is found, made small, and can be replayed', async () => {
  const bug = sourceBugs.find(({ id }) => id === 'T3-monotonic-only')
  if (bug === undefined) throw new Error('the bank has lost the bug that is planted here')
  const caught = await catchBug(bug, { explain: true })
  expect(caught.seeds).toBeGreaterThan(0)
  // Belief that is too long shows as G3, or as a loss that is not noticed.
  expect(caught.explanation).toMatch(/breaks (G3|T34) at [\d.]+ s: lease/)
  // Nothing brings this bug out without a suspended machine.
  const faults = caught.explanation?.match(/^ {2}#\d+ .*$/gm) ?? []
  expect(faults.length).toBeLessThanOrEqual(3)
  expect(faults.join()).toMatch(/suspend/)
  expect(caught.explanation).toMatch(/npm run sim -- --seed \d+ --mode \w+ --keep "[\d:,]+" --trace/)
})
