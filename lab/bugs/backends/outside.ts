/** Faults that show only on an engine that can be restarted, changed from outside, or listened to. */
import type { Replacements } from '../../../packages/holdfast/src/testing/conformance/wrapping.ts'
import { replace } from '../../../packages/holdfast/src/testing/conformance/wrapping.ts'
import { regrant, rekeep } from '../../../packages/holdfast/test/conformance/changing.ts'
import { sqliteWorldOnFakeClock } from '../../../packages/holdfast/test/conformance/sqlite-world.ts'
import type { BackendBug } from '../bug.ts'
import { type AnyBackend, brokenWorld } from './broken.ts'

function brokenSqlite(
  what: string,
  rules: string,
  plant: () => (backend: AnyBackend) => Replacements<'fenced'>,
): BackendBug {
  return brokenWorld(what, rules, () => {
    const faults = plant()
    return sqliteWorldOnFakeClock((backend) => replace(backend, faults(backend)))
  })
}

export const outsideBugs: readonly BackendBug[] = [
  brokenSqlite('tokens start again with every client', 'C50', () => () => {
    let count = 0n
    return { session: (inner) => regrant(inner, (grant) => ({ ...grant, token: ++count })) }
  }),
  brokenSqlite('tokens are counted in the record of their name', 'C51', () => () => ({
    session: (inner) => regrant(inner, (grant) => ({ ...grant, token: 1n })),
  })),
  brokenSqlite('a release asks about every waiter', 'C71', () => (backend) => ({
    session: (inner) => ({
      async release(claim, options, call) {
        const waiters = (await backend.inspect(claim.name, call))?.waiters ?? []
        for (const _ of waiters) await backend.inspect(claim.name, call)
        return inner.release(claim, options, call)
      },
    }),
  })),
  brokenSqlite('a record that is gone is not missed', 'C149 C150', () => () => ({
    session: (inner) => rekeep(inner, () => ({ lost: [] })),
  })),
]
