/** The engine that the command line names, with two clients on it: `memory`, or the path of a SQLite file. */
import { MemoryEngine, memory } from '../../../src/engines/memory/index.ts'
import { sqlite } from '../../../src/engines/sqlite/locks/index.ts'
import { createLocker, type LockerOptions } from '../../../src/locker/locker.ts'
import type { Backend } from '../../../src/spi.ts'

const where = process.argv[2] ?? 'memory'
const engine = new MemoryEngine()

export function openBackend(): Backend<'fenced'> {
  return where === 'memory' ? memory({ engine }) : sqlite({ path: where })
}

export function openClient(options?: LockerOptions) {
  return createLocker(openBackend(), options)
}
