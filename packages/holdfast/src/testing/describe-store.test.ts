/** The suite for stores accepts a right store of either kind, and each planted break of one turns a case red. */
import { describe, expect, test } from 'vitest'
import { SimulatedStore, type StoreBreak, type StoreKind } from '../../test/simulated-store.ts'
import { describeStore, type StoreWorld, storeCases } from './describe-store.ts'
import { createFakeClock } from './fake-clock.ts'

function worldOf(kind: StoreKind, broken?: StoreBreak): StoreWorld {
  const clock = createFakeClock()
  const store = new SimulatedStore(kind, broken, clock)
  let sessions = 0
  return {
    names: store.names,
    openSession: async () => {
      const id = `session ${++sessions}`
      const find = async () => store.findSession(id)
      return { claims: store.openSession(id), end: async () => store.endSession(id), find }
    },
    // What a right store tells comes without any time.
    patienceMs: 100,
    pass: (ms) => clock.advance(ms),
    async fill() {
      store.isFull = true
      return async () => {
        store.isFull = false
      }
    },
    close: async () => {},
  }
}

for (const kind of ['ranges', 'lists', 'derives'] as const)
  describeStore({ name: `simulated, ${kind}`, describe, test, createWorld: async () => worldOf(kind) })

/** Which rules each turns red. */
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
  'looks derive grants': ['S24'],
  'a name stays closed': ['S25'],
  'tells no time of a closed name': ['S25'],
  'tells of holders only': ['S26'],
  'a full engine refuses removes': ['S27'],
  'a full engine rejects marks': ['S27'],
  'a late join is not told': ['S27'],
  'finds a session that has gone': ['S28'],
}

/** By default a store that compares ranges is broken. */
const kindsOf: { readonly [Fault in StoreBreak]?: readonly StoreKind[] } = {
  'looks derive grants': ['ranges', 'lists', 'derives'],
  'a name stays closed': ['ranges', 'lists', 'derives'],
  'tells no time of a closed name': ['lists', 'derives'],
  'tells of holders only': ['ranges', 'derives'],
  'a late join is not told': ['ranges', 'derives'],
}

describe.each(Object.entries(broken) as [StoreBreak, readonly string[]][])('%s: %j', (fault, rules) => {
  test.each<StoreKind>(kindsOf[fault] ?? ['ranges'])('%s', async (kind) => {
    const red: string[] = []
    for (const { rule, run } of storeCases())
      if (rules.includes(rule)) await run(worldOf(kind, fault)).catch(() => red.push(rule))
    expect(red).toEqual(rules)
  })
})

test('no rule is given twice', () => {
  const rules = storeCases().map(({ rule }) => rule)
  expect(new Set(rules).size).toBe(rules.length)
})
