import { expect, test } from 'vitest'
import {
  isLinearizableByBruteForce,
  legalFencedMutex,
  legalMutex,
  legalReentrantFencedMutex,
  legalSemaphore,
} from '../testing/brute-force.ts'
import { Random } from '../testing/random.ts'
import { type Kind, smallHistory } from '../testing/small-histories.ts'
import { checkLinearizable } from './check.ts'
import type { Model } from './model.ts'
import type { LockCall } from './models/call.ts'
import { fencedMutex } from './models/fenced-mutex.ts'
import { mutex } from './models/mutex.ts'
import { reentrantFencedMutex } from './models/reentrant-fenced-mutex.ts'
import { semaphore } from './models/semaphore.ts'

const histories = 30_000
// Two seconds of processor time each; but the cores may be shared with many others.
const one = [1]

interface Subject {
  readonly model: Model<unknown, LockCall>
  readonly kind: Kind
  readonly most: number
}

function subject<State>(model: Model<State, LockCall>, kind: Kind, most: number): Subject {
  return { model: model as Model<unknown, LockCall>, kind, most }
}

const subjects: readonly Subject[] = [
  subject(mutex(), { legal: legalMutex, tokens: false, reentrant: false, weights: one }, 7),
  subject(fencedMutex(), { legal: legalFencedMutex, tokens: true, reentrant: false, weights: one }, 7),
  subject(
    reentrantFencedMutex(2),
    { legal: legalReentrantFencedMutex(2), tokens: true, reentrant: true, weights: one },
    7,
  ),
  subject(
    semaphore(3),
    { legal: legalSemaphore(3), tokens: false, reentrant: false, weights: [1, 1, 2, 3] },
    6,
  ),
]

test.each(subjects)('the search agrees with brute force: $model.title', ({ model, kind, most }) => {
  const random = new Random(20_26)
  let linearizable = 0
  for (let round = 0; round < histories; round++) {
    const acts = smallHistory(random, kind, most)
    const expected = isLinearizableByBruteForce(kind.legal, acts) ? 'linearizable' : 'not-linearizable'
    const asTheyAre = checkLinearizable(model, acts, { prepare: false }).result
    const prepared = checkLinearizable(model, acts).result
    if (asTheyAre !== expected || prepared !== expected)
      expect.fail(
        [
          `history ${round} is ${expected}; the search says ${asTheyAre}, with preparation ${prepared}:`,
          ...acts.map((act) => `  ${act.label()}`),
        ].join('\n'),
      )
    if (expected === 'linearizable') linearizable++
  }
  console.log(`${model.title}: ${histories} histories, ${linearizable} of them linearizable; all agree`)
  expect(linearizable).toBeGreaterThan(histories * 0.25)
  expect(linearizable).toBeLessThan(histories * 0.75)
})
