// A backend is more than its folder: users need an entry point and a page, and the suite and the benchmark must run it.
// A recipe is more than its file: an entry point, a guide, a suite and an example.
// A file of the kit is in the table of CONTRIBUTING.md, and published. The paths that ARCHITECTURE.md and CONTRIBUTING.md name exist.
// Backends, recipes and the kit are the library's; paths lead into all packages.

import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs'
import { join, matchesGlob } from 'node:path'
import { backends, upcoming } from '../docs/trap-types.ts'
import { backendsOf } from '../lib/backends.ts'
import { type Complaint, finish } from '../lib/report.ts'
import { filesUnder, libraryPath, pathFrom, root, sourcePackages } from '../lib/repository.ts'
import { descendants, importsOf, parse, ts } from '../lib/syntax.ts'
import { isSource } from './layers.ts'

const manifestPath = `${libraryPath}/package.json`
const openPath = `${libraryPath}/src/open.ts`

export interface TrapTable {
  readonly columns: readonly string[]
  /** Names that are said to be part of a later release. */
  readonly upcoming: readonly string[]
}

/** Complaints about parts that the backends below a repository's root lack. */
export function checkComplete(repository: string, traps: TrapTable): Complaint[] {
  const read = (path: string) =>
    existsSync(join(repository, path)) ? readFileSync(join(repository, path), 'utf8') : ''
  const manifest = JSON.parse(read(manifestPath) || '{}') as {
    exports?: Record<string, unknown>
  }
  const backends = backendsOf(repository)
  const openers = openersOf(read(openPath))
  const pages = backends.map(({ name }) => read(`docs/backends/${name}.md`)).filter((page) => page !== '')
  return backends.flatMap(({ name, folder }) => {
    // Another way to use the same engine: ./postgres/advisory and postgres+advisory: are postgres-advisory.
    const entry = `./${name.replace('-', '/')}`
    const scheme = name.replace('-', '+')
    const page = read(`docs/backends/${name}.md`)
    const loads = openers.get(scheme) ?? []
    const needed: [boolean, string, string][] = [
      [manifest.exports?.[entry] !== undefined, manifestPath, `has no export ${entry}`],
      [
        loads.some((path) => path.startsWith(`./${folder}/`)),
        openPath,
        openers.has(scheme)
          ? `has an opener for ${scheme}: that loads nothing of ${folder}`
          : `has no opener for ${scheme}:`,
      ],
      [
        /\bdescribeBackend\(/.test(read(`${libraryPath}/test/conformance/${name}.test.ts`)),
        `${libraryPath}/test/conformance/${name}.test.ts`,
        'does not run the conformance suite',
      ],
      [page !== '', `docs/backends/${name}.md`, 'is missing'],
      [
        page === '' || headingsOf(page) === headingsOf(pages[0] ?? ''),
        `docs/backends/${name}.md`,
        `has other headings than docs/backends/${backends[0]?.name}.md`,
      ],
      [
        read('docs/README.md').includes(`backends/${name}.md`),
        'docs/README.md',
        `does not link to backends/${name}.md`,
      ],
      [
        read('README.md').includes(`docs/backends/${name}.md`),
        'README.md',
        `does not link to docs/backends/${name}.md`,
      ],
      [read(`bench/subjects/${name}.ts`) !== '', `bench/subjects/${name}.ts`, 'is missing'],
      [traps.columns.includes(name), 'scripts/docs/trap-types.ts', `has no column ${name}`],
      [
        !traps.upcoming.some((each) => each === name || each === name.replace('-', ' ')),
        'scripts/docs/trap-types.ts',
        `has ${name} among what is upcoming, although it is there`,
      ],
    ]
    return needed.flatMap(([isThere, file, message]) => (isThere ? [] : [{ file, message }]))
  })
}

/** With its tables of options, which leave nothing out. */
const GUIDE_LINES = 140

/** Complaints about parts that the recipes below a repository's root lack. */
export function checkRecipes(repository: string): Complaint[] {
  const read = (path: string) =>
    existsSync(join(repository, path)) ? readFileSync(join(repository, path), 'utf8') : ''
  const manifest = JSON.parse(read(manifestPath) || '{}') as {
    exports?: Record<string, unknown>
  }
  return recipesOf(repository).flatMap((name) => {
    const guide = read(`docs/recipes/${name}.md`)
    const suite = `${libraryPath}/test/recipes/${name}.test.ts`
    const examples = [...guide.matchAll(/examples\/([\w-]+)/g)].map(([, folder]) => folder)
    const needed: [boolean, string, string][] = [
      [
        manifest.exports?.[`./recipes/${name}`] !== undefined,
        manifestPath,
        `has no export ./recipes/${name}`,
      ],
      [/\bdescribeRecipe\(/.test(read(suite)), suite, 'does not run on every engine with describeRecipe'],
      [guide !== '', `docs/recipes/${name}.md`, 'is missing'],
      [
        guide.split('\n').length <= GUIDE_LINES,
        `docs/recipes/${name}.md`,
        `has more than ${GUIDE_LINES} lines`,
      ],
      [
        examples.some((folder) => read(`examples/${folder}/main.ts`) !== ''),
        `docs/recipes/${name}.md`,
        'names no example that is there',
      ],
      [
        read('docs/README.md').includes(`recipes/${name}.md`),
        'docs/README.md',
        `does not link to recipes/${name}.md`,
      ],
    ]
    return needed.flatMap(([isThere, file, message]) => (isThere ? [] : [{ file, message }]))
  })
}

/** A recipe is a file of its own; folders and `needs.ts` are their parts. */
function recipesOf(repository: string): string[] {
  return readdirSync(join(repository, libraryPath, 'src/recipes'))
    .filter((file) => /^[\w-]+\.ts$/.test(file) && file !== 'needs.ts')
    .map((file) => file.replace(/\.ts$/, ''))
    .sort()
}

/** The table `schemes`: what each of them loads. */
function openersOf(text: string): Map<string, string[]> {
  const file = parse('open.ts', text)
  const table = [...descendants(file)].find(
    (node) => ts.isVariableDeclaration(node) && node.name.getText(file) === 'schemes',
  ) as ts.VariableDeclaration | undefined
  const openers = new Map<string, string[]>()
  if (table?.initializer === undefined || !ts.isObjectLiteralExpression(table.initializer)) return openers
  for (const entry of table.initializer.properties) {
    if (!ts.isPropertyAssignment(entry)) continue
    const { name, initializer } = entry
    const loaded = importsOf(parse('opener.ts', initializer.getText(file)))
      .filter(({ dynamic }) => dynamic)
      .flatMap(({ from }) => (from === null ? [] : [from]))
    openers.set(ts.isStringLiteral(name) ? name.text : name.getText(file), loaded)
  }
  return openers
}

function headingsOf(page: string): string {
  return page
    .split('\n')
    .filter((line) => line.startsWith('## '))
    .join('\n')
}

/** Files of the kit that authors of engines would not find: in the table of CONTRIBUTING.md, or in `holdfast/spi`. */
export function checkKit(repository: string): Complaint[] {
  const src = join(repository, libraryPath, 'src')
  const guide = readFileSync(join(repository, 'CONTRIBUTING.md'), 'utf8')
  const [, ...rows] = /^ *\| file \| use it for \|\n(?: *\|.*\n)*/m.exec(guide)?.[0].split('\n') ?? []
  const told = new Set(rows.flatMap((row) => [...codeIn(row.split('|')[1] ?? '')]))
  const entry = 'for-engine-authors.ts'
  const published = new Set(
    importsOf(parse(entry, readFileSync(join(src, entry), 'utf8'))).map(({ from }) => from),
  )
  return filesUnder(join(src, 'kit'), isSource)
    .map((path) => pathFrom(join(src, 'kit'), path))
    .flatMap((file) => [
      ...(told.has(file) ? [] : [{ file: 'CONTRIBUTING.md', message: `has no row for ${file} of kit/` }]),
      ...(published.has(`./kit/${file}`)
        ? []
        : [{ file: `${libraryPath}/src/${entry}`, message: `exports nothing of kit/${file}` }]),
    ])
}

/** What lies in folders that git does not have. */
const generated = /(^|\/)(node_modules|dist|\.cache|\.git)(\/.*)?$/

/**
 * Paths in these documents that lead nowhere: code with a slash, or with the ending .ts. A path begins at the root, at a
 * package or its `src`, or in a folder that stands before it in the same line; a bare file name may be anywhere. `*` and
 * `<placeholders>` stand for any name, and what is about the imaginary `acme` is left out. Of a path into a generated folder,
 * the part before that folder counts.
 */
export function checkPaths(
  repository: string,
  folders: readonly string[] = sourcePackages,
  documents: readonly string[] = ['ARCHITECTURE.md', 'CONTRIBUTING.md'],
): Complaint[] {
  const bases = ['', ...folders.flatMap((path) => [path, `${path}/src`])]
  const exclude = (path: string) => generated.test(path)
  const found = (pattern: string) => globSync(pattern, { cwd: repository, exclude }).length > 0
  const isEntry = entryTest(repository, folders)
  return documents.flatMap((file) => {
    const text = readFileSync(join(repository, file), 'utf8').replaceAll(/^ *```[\s\S]*?^ *```/gm, (block) =>
      block.replaceAll(/[^\n]/g, ''),
    )
    return text.split('\n').flatMap((content, index) => {
      const folders: string[] = []
      return [...codeIn(content)].flatMap((path) => {
        if (!isPath(path) || path.includes('acme') || isEntry(path)) return []
        const pattern = path
          .replaceAll(/<[^>]+>/g, '*')
          .replace(generated, '')
          .replace(/\/$/, '')
        const from = [...bases, ...folders].find((base) => found(join(base, pattern)))
        if (from !== undefined && path.endsWith('/')) folders.push(join(from, pattern))
        const isThere = from !== undefined || (!path.includes('/') && found(`**/${pattern}`))
        return isThere ? [] : [{ file, line: index + 1, message: `${path} does not exist` }]
      })
    })
  })
}

/** Imports from the packages of this repository: `holdfast/spi`, `holdfast/recipes/<name>`. */
function entryTest(repository: string, folders: readonly string[]): (path: string) => boolean {
  const entries = globSync(
    ['*', ...folders].map((path) => `${path}/package.json`),
    { cwd: repository },
  )
    .map((path) => JSON.parse(readFileSync(join(repository, path), 'utf8')))
    .flatMap(({ name, exports = {} }) => Object.keys(exports).map((entry) => name + entry.slice(1)))
  return (path) => entries.some((entry) => matchesGlob(entry, path.replaceAll(/<[^>]+>/g, '*')))
}

function* codeIn(text: string): Generator<string> {
  for (const [, code = ''] of text.matchAll(/`([^`]+)`/g)) yield code
}

/** No command, URL, import of another package, or option of a type. */
function isPath(code: string): boolean {
  return (
    /^(?!\.\/)[\w.*<>{},-]+(\/[\w.*<>{},-]*)*$/.test(code) && (code.includes('/') || code.endsWith('.ts'))
  )
}

if (import.meta.main) {
  const complaints = [
    ...checkComplete(root, { columns: backends, upcoming }),
    ...checkRecipes(root),
    ...checkKit(root),
    ...checkPaths(root),
  ]
  const counts = `${backendsOf(root).length} backends and ${recipesOf(root).length} recipes`
  finish('complete', complaints, `${counts} have all that belongs to them`)
}
