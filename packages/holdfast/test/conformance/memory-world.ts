/** An engine inside the test's own process, on a fake clock. */

import type { Clock } from '../../src/base/clock.ts'
import { defaults } from '../../src/base/defaults.ts'
import { MemoryEngine, type MemoryOptions, memory } from '../../src/engines/memory/index.ts'
import type { Backend } from '../../src/spi.ts'
import { Clients, type Wrap } from '../../src/testing/conformance/clients.ts'
import type { DeclaredException, World } from '../../src/testing/describe-backend.ts'
import { createFakeClock, type FakeClock } from '../../src/testing/fake-clock.ts'

export interface WorldOnFakeClock extends World<'fenced'> {
  readonly clock: FakeClock
}

export interface MemoryWorldOptions {
  readonly wrap?: Wrap<'fenced'>
  readonly engineClock?: (clock: Clock) => Clock
  readonly create?: (options: MemoryOptions) => Backend<'fenced'>
}

export async function memoryWorld(options: MemoryWorldOptions = {}): Promise<WorldOnFakeClock> {
  const { wrap, create = memory } = options
  const clock = createFakeClock()
  const engine = new MemoryEngine({ clock: options.engineClock?.(clock) ?? clock })
  const clients = new Clients(clock, (client, clock) => create({ engine, clock, ...client }), wrap)
  return {
    clock,
    ttlMs: 1_000,
    resolutionMs: 1,
    passTime: (ms) => clock.advance(ms),
    client: (options) => clients.add(options),
    delayAnswers: (ms) => clients.delayAnswers(ms),
    deleteName: async (name) => engine.deleteName(defaults.namespace, name),
    async close() {
      await clients.close()
      engine[Symbol.dispose]()
    },
  }
}

const noWire = 'engine and clients are in one process: there are no commands between them to count'
const noDisk = 'the engine ends with the process, and its default issuer with it'

/** Exceptions that such an engine needs, and why. */
export const memoryExceptions: readonly DeclaredException[] = [
  { rule: 'C50', lacksHook: 'restart', why: noDisk },
  { rule: 'C71', lacksHook: 'countCommands', why: noWire },
  { rule: 'C239', lacksHook: 'countConnections', why: noWire },
]
