/** The suite for stores accepts a right store of either kind, and each planted break of one turns a case red. */
import { describe, expect, test } from 'vitest'
import { SimulatedStore, type StoreBreak, type StoreKind } from '../../test/simulated-store.ts'
import { describeStore, type StoreWorld, storeCases } from './describe-store.ts'

function worldOf(kind: StoreKind, broken?: StoreBreak): StoreWorld {
  const store = new SimulatedStore(kind, broken)
  let sessions = 0
  return {
    names: store.names,
    openSession: async () => {
      const id = `session ${++sessions}`
      return { claims: store.openSession(id), end: async () => store.endSession(id) }
    },
    patienceMs: 1_000,
    close: async () => {},
  }
}

for (const kind of ['ranges', 'lists', 'derives'] as const)
  describeStore({ name: `simulated, ${kind}`, describe, test, createWorld: async () => worldOf(kind) })

const broken: Readonly<Record<StoreBreak, readonly string[]>> = {
  'grants without the check': ['S1', 'S8'],
  'confirms any key of the attempt': ['S11'],
  'token drawn at join': ['S9'],
  'watches from now on': ['S31'],
  'joins after the mark': ['S6'],
  'joins twice': ['S4'],
  'leaves what is granted': ['S13'],
  'releases whatever the attempt has': ['S14'],
  'removes any claim of the name': ['S16'],
  'writes data of an ended grant': ['S17'],
  'ends what was granted since': ['S34'],
  'deletes data in use': ['S38'],
  'keeps the claims of an ended session': ['S7'],
  'grants beside a changed capacity': ['S36'],
}

test.each(Object.entries(broken))('%s: %j', async (fault, rules) => {
  const red: string[] = []
  for (const { rule, run } of storeCases())
    if (rules.includes(rule)) await run(worldOf('ranges', fault as StoreBreak)).catch(() => red.push(rule))
  expect(red).toEqual(rules)
})

test('no rule is given twice', () => {
  const rules = storeCases().map(({ rule }) => rule)
  expect(new Set(rules).size).toBe(rules.length)
})
