/** A world for `describeGuard` in which each name has an object of its own, under a prefix that is the world's. */
import { type ObjectStore, type ObjectTx, objectGuard } from '../../src/guards/object.ts'
import type { GuardException, GuardWorld } from '../../src/testing/describe-guard.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'

type Cells = Record<string, { readonly value: string; readonly at: number }>

let worlds = 0

/** The cases write cells, and ask for a cell whatever name it was written under: each has the number of its write. */
export function objectGuardWorld(store: ObjectStore): GuardWorld<ObjectTx> {
  const clock = createFakeClock()
  const folder = `world-${++worlds}/`
  let writes = 0
  const parse = (body: Uint8Array | null): Cells =>
    body === null ? {} : JSON.parse(new TextDecoder().decode(body))
  return {
    guard: async (options) => objectGuard({ ...options, store, key: (name) => folder + name, clock }),
    read: async (tx, key) => parse(await tx.get())[key]?.value,
    write: async (tx, key, value) => tx.put(JSON.stringify({ [key]: { value, at: ++writes } })),
    async stored(key) {
      const cells = []
      for await (const each of store.list(folder)) {
        if (!each.endsWith('.head')) continue
        const { ptr } = JSON.parse(new TextDecoder().decode((await store.get(each))?.body))
        if (ptr !== null) cells.push(parse((await store.get(ptr))?.body ?? null)[key])
      }
      const [newest] = cells.filter((cell) => cell !== undefined).sort((a, b) => b.at - a.at)
      return newest?.value
    },
    transaction: () => Promise.reject(new Error('a store has no transactions')),
    outsideTransaction: () => Promise.reject(new Error('a store has no transactions')),
    passTime: (ms) => clock.advance(ms),
    async reopen() {},
    async close() {},
  }
}

const because = (why: string, ...rules: readonly string[]) => rules.map((rule) => ({ rule, why }))

export const objectExceptions: readonly GuardException[] = [
  ...because(
    'there is no transaction over several objects, so one proof at a time',
    ...['D31', 'D32', 'D33', 'D85', 'D123', 'D130'],
  ),
  ...because('each object has its own head, and with it its own issuer', 'D50', 'D121', 'D126'),
  ...because(
    'a mark stays for as long as its head',
    ...[
      'D90',
      'D91',
      'D92',
      'D93',
      'D94',
      'D95',
      'D96',
      'D97',
      'D98',
      'D99',
      'D100',
      'D101',
      'D102',
      'D122',
      'D140',
    ],
  ),
  ...because('a store has no transactions to enter', 'D110', 'D111', 'D112', 'D113', 'D114', 'D115', 'D116'),
  ...because('an object has one head, whatever the name of the guard', 'D127'),
]

export const azureExceptions: readonly GuardException[] = [
  ...objectExceptions,
  ...because('Azure takes a backslash for a slash, so a key with one is refused', 'D13'),
]
