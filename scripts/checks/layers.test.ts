import { dirname } from 'node:path'
import { expect, test } from 'vitest'
import { folderWith } from '../lib/test-folder.ts'
import { checkLayers, checkPackage } from './layers.ts'

const complaints = (files: Record<string, string>) =>
  checkLayers(folderWith(files)).map(
    ({ file, line, message }) => `${file.split('/src/')[1]}:${line} ${message}`,
  )

test('what the table allows passes', () => {
  const files = {
    'locker/lease.ts': `import { EventEmitter } from 'node:events'\nimport type { Backend } from '../spi.ts'\nimport './ids.ts'`,
    'locker/lease.test.ts': `import { fakeClock } from '../testing/fake-clock.ts'\nimport { test } from 'vitest'`,
    'spi.ts': `import type { Fence } from './base/fence.ts'\nexport { type Token } from './base/fence.ts'`,
    'engines/sqlite/locks/backend.ts': `import { DatabaseSync } from 'node:sqlite'\nimport '../../../base/ids.ts'\nimport '../client/index.ts'\nimport './statements.ts'`,
    'engines/sqlite/guard/store.ts': `import '../../../guards/rule.ts'\nimport '../client/index.ts'`,
    'engines/postgres/tables/tables.ts': `import '../client/index.ts'`,
    'engines/postgres/locks/schema.ts': `import '../tables/tables.ts'`,
    'engines/memory/backend.ts': `import './engine.ts'`,
    'guards/memory.ts': `import './shared.ts'\nimport '../base/fence.ts'`,
    'open.ts': `export const open = () => import('./engines/memory/index.ts')`,
    'base/load-peer.ts': `export const loadPeer = (name: string) => import(name)`,
    'base/locks.ts': `// As in PostgreSQL.\nconst memory = 'a Map'`,
    'engines/redis/redlock/from-url.ts': `import { loadPeer } from '../../../base/load-peer.ts'\nloadPeer('ioredis')`,
    'recipes/schedule/times.ts': `import '../../base/clock.ts'\nloadPeer('croner')`,
    'index.ts': `export * from './open.ts'\nexport * from './lockfree/index.ts'`,
    'testing/index.ts': `export * from '../index.ts'\nexport * from '../engines/memory/index.ts'`,
  }
  expect(complaints(files)).toEqual([])
})

test.for([
  ['locker/lease.ts', `import '../engines/memory/index.ts'`, 'locker may not import engines/memory/index.ts'],
  ['locker/lease.ts', `import 'node:fs'`, 'locker may not import node:fs'],
  [
    'locker/lease.ts',
    `export * from '../engines/redis/client/index.ts'`,
    'locker may not import engines/redis/client/index.ts',
  ],
  [
    'engines/redis/client/index.ts',
    `import '../locks/index.ts'`,
    'engines may not import engines/redis/locks/index.ts',
  ],
  [
    'engines/redis/redlock/index.ts',
    `import '../locks/index.ts'`,
    'engines may not import engines/redis/locks/index.ts',
  ],
  [
    'engines/postgres/client/index.ts',
    `import '../tables/tables.ts'`,
    'engines may not import engines/postgres/tables/tables.ts',
  ],
  ['guards/rule.ts', `import '../engines/memory/state.ts'`, 'guards may not import engines/memory/state.ts'],
  ['locker/lease.ts', `type T = import('../guards/memory.ts').T`, 'locker may not import guards/memory.ts'],
  ['spi.ts', `import { f } from './base/fence.ts'`, 'spi.ts may import only types from base/fence.ts'],
  [
    'spi.ts',
    `import { f, type F } from './base/fence.ts'`,
    'spi.ts may import only types from base/fence.ts',
  ],
  [
    'engines/redis/locks/index.ts',
    `import '../../memory/index.ts'`,
    'engines may not import engines/memory/index.ts',
  ],
  [
    'engines/redis/locks/index.ts',
    `import 'ioredis'`,
    'the library has no dependencies, so it may not import ioredis (loadPeer loads optional peers)',
  ],
  [
    'engines/redis/locks/index.ts',
    `import '../../../../../x.ts'`,
    "../../../../../x.ts lies outside the package's sources",
  ],
  ['guards/memory.ts', `import type { B } from '../spi.ts'`, 'guards may not import spi.ts'],
  ['index.ts', `export * from './testing/index.ts'`, 'index.ts may not import testing/index.ts'],
  [
    'open.ts',
    `import 'ioredis'`,
    'the library has no dependencies, so it may not import ioredis (loadPeer loads optional peers)',
  ],
  [
    'open.ts',
    `export const open = () => import('ioredis')`,
    'the library has no dependencies, so it may not import ioredis (loadPeer loads optional peers)',
  ],
  ['recipes/schedule/times.ts', `loadPeer('left-pad')`, 'left-pad is not in the table of peers'],
  ['engines/redis/client/load.ts', `loadPeer('pg')`, 'pg is loaded by postgres only'],
  ['recipes/acme.ts', `loadPeer('croner')`, 'croner is loaded by recipes/schedule only'],
  ['engines/redis/client/load.ts', `loadPeer(name)`, 'loadPeer must be given the name itself'],
  ['base/events.ts', `type Code = 'HOLDFAST_REDIS_CLOCK'`, "base names an engine: 'HOLDFAST_REDIS_CLOCK'"],
  ['base/defaults.ts', `const redlockTimeoutMs = 50`, 'base names an engine: redlockTimeoutMs'],
  ['kit/url.ts', 'const text = `postgres:`', 'kit names an engine: `postgres:`'],
  ['recipes/acme.ts', `const load = (name: string) => import(name)`, 'a dynamic import must name its file'],
  [
    'recipes/acme.ts',
    `import 'croner'`,
    'the library has no dependencies, so it may not import croner (loadPeer loads optional peers)',
  ],
  ['open.ts', `const loadPeer = (name: string) => import(name)`, 'a dynamic import must name its file'],
  [
    'engines/redis/client/load.ts',
    `export const load = () => import('ioredis')`,
    'the library has no dependencies, so it may not import ioredis (loadPeer loads optional peers)',
  ],
  ['index.ts', `export const open = (x: string) => import(x)`, 'a dynamic import must name its file'],
  ['engines/shared.ts', ``, 'belongs to no layer'],
  ['helpers/text.ts', ``, 'belongs to no layer'],
] as const)('%s with %s is refused', ([file, text, message]) => {
  expect(complaints({ [file]: text })).toEqual([`${file}:1 ${message}`])
})

test('another package has no layers: it imports what its manifest names, and its own sources', () => {
  const others = (text: string) => {
    const folder = folderWith({
      '../package.json':
        '{ "dependencies": { "holdfast": "*", "@acme/wire": "1" }, "peerDependencies": { "ws": "8" } }',
      'web/page.ts': text,
      'web/page.test.ts': `import 'vitest'`,
    })
    return checkPackage('.', dirname(folder)).map(({ line, message }) => `${line} ${message}`)
  }
  const named = ['holdfast', 'holdfast/spi', '@acme/wire/text', 'ws', 'node:http', '../kit/a.ts']
  expect(others(named.map((from) => `import '${from}'`).join('\n'))).toEqual([])
  expect(others(`import 'left-pad'`)).toEqual(['1 the manifest of . does not name left-pad'])
  expect(others(`import '@acme/other'`)).toEqual(['1 the manifest of . does not name @acme/other'])
  expect(others(`\nimport '../../../holdfast/src/kit/lane.ts'`)).toEqual([
    "2 ../../../holdfast/src/kit/lane.ts lies outside the package's sources",
  ])
  expect(others('export const load = (x: string) => import(x)')).toEqual([
    '1 a dynamic import must name its file',
  ])
})
