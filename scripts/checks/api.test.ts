import { join } from 'node:path'
import { expect, test } from 'vitest'
import { folderWith } from '../lib/test-folder.ts'
import { checkApi, recordsOf, writeApi } from './api.ts'

const manifest = {
  name: 'sample',
  type: 'module',
  exports: { '.': { types: './dist/index.d.ts' }, './guards/memory': { types: './dist/guard.d.ts' } },
}
const files = {
  'package.json': JSON.stringify(manifest),
  'dist/index.d.ts': `
    export { Lease as Held } from './locker/lease.ts'
    export * from './base/names.js'
    export type { Mode } from './locker/lease.js'
  `,
  'dist/guard.d.ts': `import type { Mode } from './locker/lease.js'\nexport declare function guard(mode: Mode): void`,
  'dist/locker/lease.d.ts': `
    /** Either way. */
    export type Mode = 'exclusive' | 'shared'
    interface Inner { readonly deep: Deeper }
    interface Deeper { readonly ms: number }
    export declare class Lease { #private; /** Why. */ mode: Mode; inner(): Inner }
    export declare class Unreachable {}
  `,
  'dist/base/names.d.ts': `
    export declare const limit = 512, other = 1
    export declare function check(name: string): string
    export declare function check(name: string, strict: true): number
  `,
}

const index = `# sample

What users can import from here. Written by \`npm run api\` and compared in the tests: a change is made on purpose.

## Held

\`\`\`ts
class Lease {
    #private;
    mode: Mode;
    inner(): Inner;
}
\`\`\`

## Mode

\`\`\`ts
type Mode = 'exclusive' | 'shared';
\`\`\`

## check

\`\`\`ts
function check(name: string): string;
function check(name: string, strict: true): number;
\`\`\`

## limit

\`\`\`ts
const limit = 512, other = 1;
\`\`\`

## other

\`\`\`ts
const limit = 512, other = 1;
\`\`\`

# Mentioned above, exported nowhere

## Deeper

\`\`\`ts
interface Deeper {
    readonly ms: number;
}
\`\`\`

## Inner

\`\`\`ts
interface Inner {
    readonly deep: Deeper;
}
\`\`\`
`

test('the record of each entry follows re-exports and leaves comments out', () => {
  const records = recordsOf(folderWith(files))
  expect([...records.keys()]).toEqual(['index.api.md', 'guards-memory.api.md'])
  expect(records.get('index.api.md')).toBe(index)
  // Mode is exported by another entry, so it is recorded there.
  expect(records.get('guards-memory.api.md')).toMatch(
    /## guard\n\n```ts\nfunction guard\(mode: Mode\): void;\n```\n$/,
  )
})

test('the records of another package have its name', () => {
  const other = {
    'package.json': JSON.stringify({
      name: 'other',
      exports: { '.': { types: './dist/index.d.ts' }, './port': { types: './dist/index.d.ts' } },
    }),
    'dist/index.d.ts': 'export declare const port: number',
  }
  expect([...recordsOf(folderWith(files), folderWith(other)).keys()]).toEqual([
    'index.api.md',
    'guards-memory.api.md',
    'other.api.md',
    'other-port.api.md',
  ])
})

test('a changed, a missing and a left-over record are refused, until they are rewritten', () => {
  const folder = folderWith({
    ...files,
    'api/index.api.md': index.replace('512', '256'),
    'api/old.api.md': '# old\n',
  })
  const records = recordsOf(folder)
  const complaints = checkApi(records, join(folder, 'api'))
  expect(complaints.map(({ file }) => file)).toEqual([
    'api/index.api.md',
    'api/guards-memory.api.md',
    'api/old.api.md',
  ])
  expect(complaints[0]?.message).toContain(
    '  ## limit\n- const limit = 256, other = 1;\n+ const limit = 512, other = 1;',
  )
  writeApi(records, join(folder, 'api'))
  expect(checkApi(records, join(folder, 'api'))).toEqual([])
})

test('an entry without declarations fails', () => {
  const { 'dist/guard.d.ts': _, ...rest } = files
  expect(() => recordsOf(folderWith(rest))).toThrow('build the package first')
})
