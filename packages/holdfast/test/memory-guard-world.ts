/** A guard in memory that remembers over a reopening, changed by the caller: for tests of the suite for guards. */
import type { Guard } from '../src/guards/guard.ts'
import { type MemoryGuard, MemoryResource, type MemoryTx, memoryGuard } from '../src/guards/memory.ts'
import type { GuardWorld } from '../src/testing/describe-guard.ts'
import { createFakeClock } from '../src/testing/fake-clock.ts'

export type Tx = MemoryTx<string>
export type ChangeGuard = (guard: MemoryGuard<string>) => Guard<Tx>

export function memoryGuardWorld(change: ChangeGuard = (guard) => guard): GuardWorld<Tx> {
  const clock = createFakeClock()
  const resource = new MemoryResource<string>()
  return {
    guard: async (options) => change(memoryGuard({ ...options, resource, clock })),
    read: async (tx, key) => tx.get(key),
    write: async (tx, key, value) => tx.set(key, value),
    stored: async (key) => resource.get(key),
    transaction: (_guard, body) => resource.transaction(body),
    outsideTransaction: () => resource.transaction((tx) => tx),
    passTime: (ms) => clock.advance(ms),
    async reopen() {},
    async close() {},
  }
}
