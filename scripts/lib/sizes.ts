// How many lines each part of the packages has, and how many it may have.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Complaint } from './report.ts'
import { libraryPath, pathFrom, root, sourcePackages } from './repository.ts'

/**
 * The most lines that a part may have. A ceiling only goes down: a change that needs more says why in an ADR, and raises it.
 */
export const ceilings: Readonly<Record<string, number>> = {
  base: 2_982,
  'engines/consul/client': 713,
  'engines/consul/locks': 1_445,
  'engines/etcd/client': 1_891,
  'engines/etcd/guard': 403,
  'engines/etcd/lockfree': 69,
  'engines/etcd/locks': 1_239,
  'engines/zookeeper/client': 1_581,
  'engines/zookeeper/locks': 1_656,
  'engines/memory': 1_026,
  'packages/cli': 2_000,
  'engines/postgres/advisory': 1_964,
  'engines/postgres/client': 2_163,
  'engines/postgres/guard': 1_310,
  'engines/postgres/lockfree': 1_072,
  'engines/postgres/locks': 2_868,
  'engines/postgres/tables': 221,
  'engines/redis/client': 2_133,
  'engines/redis/guard': 1_139,
  'engines/redis/locks': 3_430,
  'engines/redis/redlock': 2_576,
  'engines/sqlite/client': 319,
  'engines/sqlite/guard': 1_654,
  'engines/sqlite/lockfree': 306,
  'engines/sqlite/locks': 2_551,
  'entry points': 1_021,
  guards: 2_175,
  kit: 4_252,
  locker: 3_268,
  lockfree: 1_579,
  recipes: 3_294,
  telemetry: 737,
  'whole library': 53_037,
}

export interface Part {
  readonly name: string
  readonly files: number
  readonly lines: number
}

/** The lines of .ts, .lua and .sql files, without tests and without `testing/`. */
export function measureParts(): Part[] {
  const sums = new Map<string, Part>()
  for (const path of sourcePackages) {
    const src = join(root, path, 'src')
    for (const entry of readdirSync(src, { recursive: true, withFileTypes: true })) {
      const file = pathFrom(src, join(entry.parentPath, entry.name))
      if (!entry.isFile() || !isMeasured(file)) continue
      const lines = readFileSync(join(src, file), 'utf8').split('\n').length - 1
      for (const name of path === libraryPath ? ['whole library', partOf(file)] : [path]) {
        const sum = sums.get(name) ?? { name, files: 0, lines: 0 }
        sums.set(name, { name, files: sum.files + 1, lines: sum.lines + lines })
      }
    }
  }
  return [...sums.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

export function isMeasured(file: string): boolean {
  return /\.(ts|lua|sql)$/.test(file) && !/\.(test|test-d)\.ts$/.test(file) && !file.startsWith('testing/')
}

/** `locker`, `engines/redis/locks`, `engines/memory`; files beside the folders are entry points. */
export function partOf(file: string): string {
  const [layer = '', engine, ...inside] = file.split('/')
  if (engine === undefined) return 'entry points'
  if (layer !== 'engines') return layer
  return inside.length > 1 ? `engines/${engine}/${inside[0]}` : `engines/${engine}`
}

export function checkSizes(
  parts: readonly Part[],
  most: Readonly<Record<string, number>> = ceilings,
): Complaint[] {
  const complaintOf = (message: string) => ({ file: 'scripts/lib/sizes.ts', message })
  const names = new Set(parts.map(({ name }) => name))
  return [
    ...parts.flatMap(({ name, lines }) => {
      const ceiling = most[name]
      if (ceiling === undefined) return [complaintOf(`${name} has ${lines} lines and no ceiling`)]
      if (lines <= ceiling) return []
      return [complaintOf(`${name} has ${lines} lines of ${ceiling}: say why in an ADR and raise it`)]
    }),
    ...Object.keys(most)
      .filter((name) => !names.has(name))
      .map((name) => complaintOf(`${name} has a ceiling, and is not there`)),
  ]
}
