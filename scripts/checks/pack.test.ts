// What users would install: the packed library in an empty project.

import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, posix } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { backendsOf } from '../lib/backends.ts'
import { root, tsc } from '../lib/repository.ts'
import { entriesOf } from '../lib/surface.ts'

const library = join(root, 'packages/holdfast')
const tool = (path: string) => join(root, 'node_modules', path)

let project: string
let tarball: string
let files: string[]
let packedBytes: number

const readPacked = (path: string) => readFileSync(join(project, 'node_modules/holdfast', path), 'utf8')

/** As links name them. */
function headingsOf(text: string): string[] {
  const headings = text.split('\n').filter((line) => /^#+ /.test(line))
  return headings.map((line) =>
    line
      .replace(/^#+ /, '')
      .toLowerCase()
      .replace(/[^\w -]/g, '')
      .replaceAll(' ', '-'),
  )
}

function start(command: string, args: string[], cwd: string) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd, encoding: 'utf8' })
  if (error) throw error
  return { status, stdout, output: `${command} ${args.join(' ')}\n${stdout}${stderr}`, stderr }
}

/** Runs to the end and returns what was printed; a failure fails the test and shows the output. */
function run(command: string, args: string[], cwd: string) {
  const result = start(command, args, cwd)
  expect(result.status, result.output).toBe(0)
  return result
}

/** Type-checks a program of the project that imports these, under the given options. */
function compile(specifiers: readonly string[], options: object) {
  const imports = specifiers.map((specifier, index) => `import * as entry${index} from '${specifier}'`)
  const names = specifiers.map((_, index) => `entry${index}`)
  const program = [...imports, `export const all: object[] = [${names.join(', ')}]`]
  writeFileSync(join(project, 'consumer.ts'), program.join('\n'))
  const compilerOptions = {
    ...options,
    target: 'ES2023',
    strict: true,
    noEmit: true,
    // The declarations that we ship are checked as well.
    skipLibCheck: false,
    // The project of a Node user has these; here they are borrowed.
    typeRoots: [tool('@types')],
    types: ['node'],
  }
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['consumer.ts'] }))
  return start(process.execPath, [tsc, '-p', project], project)
}

describe('package', () => {
  const specifiers = entriesOf(library).map(({ specifier }) => specifier)

  beforeAll(() => {
    project = mkdtempSync(join(tmpdir(), 'holdfast-pack-'))
    const [packed] = Object.values(
      JSON.parse(run('npm', ['pack', '--json', '--pack-destination', project], library).stdout),
    ) as { filename: string; size: number; files: { path: string }[] }[]
    if (!packed) throw new Error('npm pack packed nothing')
    tarball = join(project, packed.filename)
    packedBytes = packed.size
    files = packed.files.map(({ path }) => path)
    writeFileSync(
      join(project, 'package.json'),
      JSON.stringify({ name: 'consumer', type: 'module', private: true }),
    )
    run('npm', ['install', '--offline', '--no-audit', '--no-fund', tarball], project)
  }, 120_000)

  afterAll(() => rmSync(project, { recursive: true, force: true }))

  test('contains the build, the documents and the licence, and no tests', () => {
    const others = files.filter((path) => !/^(dist|docs)\//.test(path))
    expect(others.sort()).toEqual(['LICENSE', 'README.md', 'package.json'])
    expect(files.filter((path) => !/\.(js|d\.ts|md|json)$|^LICENSE$/.test(path))).toEqual([])
    expect(files.filter((path) => /\.test(-d)?\./.test(path))).toEqual([])
  })

  test('is small, in few files, without source maps that lead nowhere', () => {
    // 400 kB with six engines, and 15 kB for each engine or recipe that came after them.
    const backends = backendsOf(root)
    const recipes = specifiers.filter((specifier) => specifier.includes('/recipes/'))
    expect(packedBytes).toBeLessThanOrEqual(400_000 + 15_000 * (backends.length - 6 + recipes.length))
    expect(files.length).toBeLessThanOrEqual(420)
    const scripts = files.filter((path) => path.endsWith('.js'))
    expect(scripts.filter((path) => /sourceMappingURL/.test(readPacked(path)))).toEqual([])
  })

  test('every link of its README leads somewhere', () => {
    const { version } = JSON.parse(readPacked('package.json'))
    const readme = readPacked('README.md')
    const links = [...readme.matchAll(/\]\(([^)]+)\)/g)].map(([, link = '']) => link)
    expect(links.length).toBeGreaterThan(10)
    const broken = links.filter((link) => {
      const [, path = '', heading] =
        /^(?:https:\/\/unpkg\.com\/holdfast@([^#]*))?(?:#(.*))?$/.exec(link) ?? []
      if (path === '' && heading === undefined) return !link.startsWith('https://')
      const file = path === '' ? 'README.md' : path.replace(`${version}/`, '')
      return (
        !files.includes(file) || (heading !== undefined && !headingsOf(readPacked(file)).includes(heading))
      )
    })
    expect(broken).toEqual([])
  })

  test('every link of its documents leads to a file of the package', () => {
    const documents = files.filter((path) => /^docs\/.*\.md$/.test(path))
    const broken = documents.flatMap((document) =>
      [...readPacked(document).matchAll(/\]\((?!#|https?:)([^)#]+)/g)]
        .map(([, link = '']) => posix.join(posix.dirname(document), link))
        .filter((path) => !files.includes(path))
        .map((path) => `${document}: ${path}`),
    )
    expect(documents.length).toBeGreaterThan(10)
    expect(broken).toEqual([])
  })

  test.for([
    ['NodeNext', { module: 'NodeNext' }],
    ['a bundler', { module: 'ESNext', moduleResolution: 'bundler' }],
  ] as const)('T58 the types of every entry point resolve under %s', ([, options]) => {
    const { status, output } = compile(specifiers, options)
    expect(status, output).toBe(0)
  })

  test('declarations that do not resolve would be noticed', () => {
    const folder = join(project, 'node_modules/broken')
    mkdirSync(folder)
    const manifest = {
      name: 'broken',
      type: 'module',
      exports: { types: './index.d.ts', default: './index.js' },
    }
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest))
    writeFileSync(join(folder, 'index.d.ts'), `export * from './lease'`)
    writeFileSync(join(folder, 'lease.d.ts'), 'export declare const lease: string')
    const { status, output } = compile(['broken'], { module: 'NodeNext' })
    expect(status).not.toBe(0)
    expect(output).toContain('need explicit file extensions')
  })

  test('every entry point loads and prints nothing', () => {
    const program = specifiers.map((specifier) => `await import('${specifier}')`).join('\n')
    const flags = ['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', program]
    const { stdout, stderr } = run(process.execPath, flags, project)
    expect(stdout + stderr).toBe('')
  })

  test('publint finds nothing', () => {
    run(process.execPath, [tool('publint/src/cli.js'), 'run', tarball, '--strict'], project)
  })

  test('attw finds nothing', () => {
    run(
      process.execPath,
      [tool('@arethetypeswrong/cli/dist/index.js'), tarball, '--profile', 'esm-only'],
      project,
    )
  })
})
