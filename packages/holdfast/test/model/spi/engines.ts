/** Engines to compare, each with several clients: the last one in a namespace of its own. */
import { randomUUID } from 'node:crypto'
import { existsSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Clock } from '../../../src/base/clock.ts'
import { MemoryEngine, memory } from '../../../src/engines/memory/index.ts'
import { sqlite } from '../../../src/engines/sqlite/locks/index.ts'
import { seededRandom } from '../../../src/testing/seeded-random.ts'
import { CLIENTS } from './commands.ts'
import { type Client, Side } from './side.ts'

export function clientsOf(create: (namespace: string) => Client): Client[] {
  return Array.from({ length: CLIENTS }, (_, at) => create(at === CLIENTS - 1 ? 'elsewhere' : 'here'))
}

export function memorySide(title: string, clock: Clock, wrap = (client: Client) => client): Side {
  const random = seededRandom(1)
  const engine = new MemoryEngine({ clock, random })
  return new Side(
    title,
    clientsOf((namespace) => wrap(memory({ engine, random, namespace }))),
  )
}

/** Several clients of one file. */
export function sqliteSide(title: string, clock: Clock, folder: string): Side {
  const path = join(folder, `${randomUUID()}.db`)
  return new Side(
    title,
    // Its ids name sockets, which must not be those of another run.
    clientsOf((namespace) => sqlite({ path, clock, namespace })),
  )
}

/** In memory where there is such a place: it is the engine that is tried here, not the disk. */
export function makeFolder(): string {
  const fast = existsSync('/dev/shm') ? '/dev/shm' : tmpdir()
  return mkdtempSync(join(fast, 'holdfast-model-'))
}

export async function closeAll(...sides: readonly Side[]): Promise<void> {
  for (const side of sides) await Promise.all(side.clients.map((client) => client[Symbol.asyncDispose]()))
}
