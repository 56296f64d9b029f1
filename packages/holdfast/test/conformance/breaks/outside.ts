/** Faults that show only on an engine that can be restarted, changed from outside, or listened to. */
import type { Replacements } from '../../../src/testing/conformance/wrapping.ts'
import { replace } from '../../../src/testing/conformance/wrapping.ts'
import { sqliteWorldOnFakeClock } from '../sqlite-world.ts'
import { type AnyBackend, type Break, regrant } from './break.ts'

function brokenSqlite(
  what: string,
  red: string,
  plant: () => (backend: AnyBackend) => Replacements<'fenced'>,
): Break {
  const createWorld = () => {
    const faults = plant()
    return sqliteWorldOnFakeClock((backend) => replace(backend, faults(backend)))
  }
  return { what, red: red.split(' '), createWorld }
}

export const outsideBreaks: readonly Break[] = [
  brokenSqlite('tokens start again with every client', 'C50', () => () => {
    let count = 0n
    return { session: (inner) => regrant(inner, (grant) => ({ ...grant, token: ++count })) }
  }),
  brokenSqlite('tokens are counted in the record of their name', 'C51', () => () => ({
    session: (inner) => regrant(inner, (grant) => ({ ...grant, token: 1n })),
  })),
  brokenSqlite('a release asks about everybody who waits', 'C71', () => (backend) => ({
    session: (inner) => ({
      async release(claim, options, call) {
        const waiters = (await backend.inspect(claim.name, call))?.waiters ?? []
        for (const _ of waiters) await backend.inspect(claim.name, call)
        return inner.release(claim, options, call)
      },
    }),
  })),
  brokenSqlite('a record that is gone is not missed', 'C149 C150', () => () => ({
    session: (inner) => ({
      async keepAlive(claims, call) {
        const result = await inner.keepAlive(claims, call)
        return result.kind === 'alive' ? { ...result, lost: [] } : result
      },
    }),
  })),
]
