/**
 * The rules of a conditional store, which the kit makes a backend of (`ClaimStore`, `NameStore`). It says early where a store is wrong;
 * `describeBackend` remains the definition of "works". The suite runs in any test runner that has `describe` and `test`.
 *
 * ```ts
 * describeStore({ name: 'my engine', describe, test, createWorld: () => openMyStore() })
 * ```
 */
import type { StoreCase, StoreWorld } from './store-cases/case.ts'
import { claimCases } from './store-cases/claims.ts'
import { nameCases } from './store-cases/names.ts'

export type { StoreCase, StoreSessionWorld, StoreWorld } from './store-cases/case.ts'

export interface StoreSuite {
  /** Stands before the topics in the runner's report. */
  readonly name: string
  readonly describe: (name: string, body: () => void) => unknown
  readonly test: (name: string, body: () => Promise<void>) => unknown
  /** A fresh world for every case. A server that cannot be reached is a failure, not a reason to skip. */
  readonly createWorld: () => Promise<StoreWorld>
  /** By default all of `storeCases()`. */
  readonly cases?: readonly StoreCase[]
}

export function storeCases(): readonly StoreCase[] {
  return [...claimCases, ...nameCases]
}

export function describeStore({ name, describe, test, createWorld, cases = storeCases() }: StoreSuite): void {
  describe(`${name} stores`, () => {
    for (const [topic, members] of Map.groupBy(cases, (each) => each.topic))
      describe(topic, () => {
        for (const each of members)
          test(`${each.rule} ${each.title}`, async () => {
            const world = await createWorld()
            try {
              await each.run(world)
            } finally {
              await world.close()
            }
          })
      })
  })
}
