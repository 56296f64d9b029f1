import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { checkComplete, checkKit, checkPaths, checkRecipes } from './complete.ts'

const folders: string[] = []
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
})

function openTs({ scheme = 'acme', loads = './engines/acme/locks/from-url.ts' } = {}): string {
  return `
    import type { AcmeOptions } from './engines/acme/locks/index.ts'
    const schemes: Engines = {
      other: () => import('./other.ts'),
      '${scheme}': () => import('${loads}'),
    }`
}

const whole: Readonly<Record<string, string>> = {
  'packages/holdfast/src/engines/acme/locks/index.ts': '',
  'packages/holdfast/src/engines/acme/locks/from-url.ts': '',
  'packages/holdfast/package.json': '{ "exports": { "./acme": {} } }',
  'packages/holdfast/src/open.ts': openTs(),
  'packages/holdfast/test/conformance/acme.test.ts': 'describeBackend({})',
  'docs/backends/acme.md': '# acme\n\n## What it is\n',
  'docs/README.md': '[acme](backends/acme.md)',
  'README.md': '[acme](docs/backends/acme.md)',
  'bench/subjects/acme.ts': 'export {}',
}

function repository(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-complete-'))
  folders.push(folder)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
  return folder
}

const traps = { columns: ['core', 'acme'], upcoming: ['etcd'] }

test('a backend with all that belongs to one passes', () => {
  expect(checkComplete(repository(whole), traps)).toEqual([])
})

test('each thing that is missing is named', () => {
  for (const path of Object.keys(whole).filter((each) => !each.includes('/src/engines/'))) {
    const { [path]: _, ...rest } = whole
    expect(checkComplete(repository(rest), traps).map(({ file }) => file)).toEqual([path])
  }
})

test.each([
  [
    'a type import alone',
    openTs({ loads: './locker/locker.ts' }),
    'that loads nothing of engines/acme/locks',
  ],
  ['no scheme', openTs({ scheme: 'acne' }), 'has no opener for acme:'],
  ["another's opener", openTs({ loads: './other.ts' }), 'that loads nothing of engines/acme/locks'],
  ['text in a comment', "// import('./engines/acme/locks/index.ts')", 'has no opener for acme:'],
])('%s is no opener', (_, text, message) => {
  const complaints = checkComplete(repository({ ...whole, 'packages/holdfast/src/open.ts': text }), traps)
  expect(complaints).toEqual([
    { file: 'packages/holdfast/src/open.ts', message: expect.stringContaining(message) },
  ])
})

test('a backend that is there needs a column, and is not upcoming any more', () => {
  expect(checkComplete(repository(whole), { ...traps, columns: ['core'] })).toHaveLength(1)
  expect(checkComplete(repository(whole), { ...traps, upcoming: ['acme'] })).toHaveLength(1)
  expect(checkComplete(repository(whole), { columns: ['core'], upcoming: ['acme'] })).toHaveLength(2)
})

test('another way to use an engine has its names', () => {
  const files = {
    ...Object.fromEntries(
      Object.entries(whole).map(([path, text]) => [
        path.replace('engines/acme/locks', 'engines/acme/fast').replace(/acme(?!\/fast)/, 'acme-fast'),
        text.replaceAll('acme', 'acme-fast'),
      ]),
    ),
    'packages/holdfast/package.json': JSON.stringify({
      exports: { './acme/fast': { default: './dist/engines/acme/fast/index.js' } },
    }),
    'packages/holdfast/src/open.ts': openTs({
      scheme: 'acme+fast',
      loads: './engines/acme/fast/from-url.ts',
    }),
  }
  const columns = ['core', 'acme-fast']
  expect(checkComplete(repository(files), { ...traps, columns })).toEqual([])
  expect(checkComplete(repository(files), { columns, upcoming: ['acme fast'] })).toHaveLength(1)
})

test('the page of a backend has the headings of the others', () => {
  const second = Object.fromEntries(
    Object.entries(whole).map(([path, text]) => [
      path.replace('acme', 'zeta'),
      text.replaceAll('acme', 'zeta'),
    ]),
  )
  const both = {
    ...second,
    ...whole,
    'packages/holdfast/package.json': '{ "exports": { "./acme": {}, "./zeta": {} } }',
    'packages/holdfast/src/open.ts': openTs()
      .replace('other:', 'zeta:')
      .replace('./other.ts', './engines/zeta/locks/from-url.ts'),
    'docs/README.md': '(backends/acme.md) (backends/zeta.md)',
    'README.md': '(docs/backends/acme.md) (docs/backends/zeta.md)',
  }
  const table = { ...traps, columns: ['acme', 'zeta'] }
  expect(checkComplete(repository(both), table)).toEqual([])
  const odd = { ...both, 'docs/backends/zeta.md': '# zeta\n\n## Something else\n' }
  expect(checkComplete(repository(odd), table).map(({ file }) => file)).toEqual(['docs/backends/zeta.md'])
})

const recipe: Readonly<Record<string, string>> = {
  'packages/holdfast/src/recipes/needs.ts': '',
  'packages/holdfast/src/recipes/acme.ts': '',
  'packages/holdfast/package.json': '{ "exports": { "./recipes/acme": {} } }',
  'packages/holdfast/test/recipes/acme.test.ts': 'describeRecipe()',
  'docs/recipes/acme.md': 'See examples/acme-shop.',
  'docs/README.md': '[acme](recipes/acme.md)',
  'examples/acme-shop/main.ts': 'export {}',
}

test('a recipe with all that belongs to one passes', () => {
  expect(checkRecipes(repository(recipe))).toEqual([])
})

test('each thing that is missing of a recipe is named', () => {
  for (const path of Object.keys(recipe).filter((each) => !each.includes('/src/recipes/'))) {
    const { [path]: _, ...rest } = recipe
    expect(checkRecipes(repository(rest)).length, path).toBeGreaterThan(0)
  }
})

test('a guide that is too long is named', () => {
  const long = { ...recipe, 'docs/recipes/acme.md': `examples/acme-shop${'\n'.repeat(140)}` }
  expect(checkRecipes(repository(long)).map(({ message }) => message)).toEqual(['has more than 140 lines'])
})

const kitTable = (...files: string[]) =>
  [
    '| file | what it has |',
    '|---|---|',
    '| `looks.ts` | not the kit |',
    '',
    '   | file | use it for |',
    '   |---|---|',
  ]
    .concat(files.map((file) => `   | ${file} | it |`))
    .join('\n')
    .concat('\n')

const kit: Readonly<Record<string, string>> = {
  'packages/holdfast/src/kit/lane.ts': '',
  'packages/holdfast/src/kit/lane.test.ts': '',
  'packages/holdfast/src/kit/looks.ts': '',
  'packages/holdfast/src/for-engine-authors.ts': `
    export { Lane } from './kit/lane.ts'
    export type { Looks } from './kit/looks.ts'`,
  'CONTRIBUTING.md': kitTable('`lane.ts`, `looks.ts`'),
}

test('a kit whose files are all in the table and published passes', () => {
  expect(checkKit(repository(kit))).toEqual([])
})

test('a file of the kit that is in another table only, or that is not published, is named', () => {
  const untold = { ...kit, 'CONTRIBUTING.md': kitTable('`lane.ts`') }
  expect(checkKit(repository(untold))).toEqual([
    { file: 'CONTRIBUTING.md', message: 'has no row for looks.ts of kit/' },
  ])
  const entry = 'packages/holdfast/src/for-engine-authors.ts'
  const unpublished = { ...kit, [entry]: `export { Looks } from './kit/looks.ts' // './kit/lane.ts'` }
  expect(checkKit(repository(unpublished))).toEqual([
    { file: entry, message: 'exports nothing of kit/lane.ts' },
  ])
})

function pathsIn(architecture: string, packages?: readonly string[]): string[] {
  const folder = repository({
    'packages/holdfast/package.json':
      '{ "name": "holdfast", "exports": { ".": {}, "./spi": {}, "./recipes/election": {} } }',
    'packages/holdfast/src/base/clock.ts': '',
    'packages/holdfast/src/engines/redis/locks/scripts/library.ts': '',
    'packages/holdfast/test/model/runs.test.ts': '',
    'packages/server/src/doors/http.ts': '',
    'packages/server/package.json': '{ "name": "holdfast-server", "exports": { "./doors": {} } }',
    'docs/adr/0001.md': '',
    'CONTRIBUTING.md': '',
    'ARCHITECTURE.md': architecture,
  })
  return checkPaths(folder, packages).map(({ file, line, message }) => `${file}:${line}: ${message}`)
}

test('a path may begin at the root, at the library, at its sources, or in a folder that the line names before', () => {
  const there = [
    '`docs/adr/` and `docs/adr/0001.md`, `packages/holdfast/package.json`, `test/model/`, `base/clock.ts`',
    '| `engines/redis/locks/` | `scripts/library.ts` |',
    'a bare name: `library.ts`; with others: `base/*.ts`, `src/**/*.ts`, `engines/<engine>/locks/`',
    'no paths: `holdfast/spi`, `holdfast/recipes/<name>`, `npm run no/such`, `redis://a/b`, `./spi`, `lease.signal`, `a`',
    'an imaginary engine: `engines/acme/locks/`, `acme.ts`',
    '```',
    '`no/such/path.ts` in a drawing',
    '```',
  ]
  expect(pathsIn(there.join('\n'))).toEqual([])
})

test('a path that does not exist is named, with its line', () => {
  const gone = [
    '`base/clock.ts` is there, `base/clocks.ts` is not',
    '`engines/redis/locks/` has no `scripts/lib.ts`',
    '`scripts/library.ts` lacks its folder, `gone.ts` is nowhere, `engines/*/guard/` is empty',
    'not published: `holdfast/gone`',
  ]
  expect(pathsIn(gone.join('\n'))).toEqual([
    'ARCHITECTURE.md:1: base/clocks.ts does not exist',
    'ARCHITECTURE.md:2: scripts/lib.ts does not exist',
    'ARCHITECTURE.md:3: scripts/library.ts does not exist',
    'ARCHITECTURE.md:3: gone.ts does not exist',
    'ARCHITECTURE.md:3: engines/*/guard/ does not exist',
    'ARCHITECTURE.md:4: holdfast/gone does not exist',
  ])
})

test('paths lead into each of the packages', () => {
  const paths = '`packages/server/src/doors/`, `doors/http.ts`, `src/doors/http.ts`, `holdfast-server/doors`'
  expect(pathsIn(paths, ['packages/holdfast', 'packages/server'])).toEqual([])
  expect(pathsIn(paths, ['packages/holdfast'])).toHaveLength(3)
})

test('a generated folder need not be there, but what it lies in', () => {
  expect(pathsIn('`packages/holdfast/dist`, `dist/index.js`, `.cache/`, `node_modules/acme/a.ts`')).toEqual(
    [],
  )
  expect(pathsIn('`packages/gone/dist`, `base/xdist`')).toEqual([
    'ARCHITECTURE.md:1: packages/gone/dist does not exist',
    'ARCHITECTURE.md:1: base/xdist does not exist',
  ])
})
