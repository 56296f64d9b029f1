// Installs the packed packages in an empty project, as users would.

import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, posix } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { backendsOf } from '../lib/backends.ts'
import { bytesOfParts, sharedParts } from '../lib/packed-parts.ts'
import { libraryPath, packages, root, tsc } from '../lib/repository.ts'
import { entriesOf } from '../lib/surface.ts'

const MOST_FILES = 460

/** How many packed bytes each part of the library may add. A new engine or recipe brings its own line. */
const allowances: Readonly<Record<string, number>> = {
  'core and kit': 101_000,
  documents: 80_000,
  testing: 66_000,
  'guards and lockfree': 24_000,
  'command line': 60_000,
  telemetry: 15_000,
  'web-locks': 5_500,
  memory: 9_500,
  sqlite: 43_000,
  redis: 58_500,
  redlock: 26_000,
  postgres: 69_000,
  'postgres-advisory': 24_000,
  etcd: 36_000,
  zookeeper: 35_000,
  consul: 25_500,
  'recipes/election': 7_000,
  'recipes/lock-order': 5_500,
  'recipes/partitions': 8_000,
  'recipes/reentrant': 4_000,
  'recipes/schedule': 11_000,
  'recipes/single-flight': 5_000,
}

const tool = (path: string) => join(root, 'node_modules', path)

interface Packed {
  readonly name: string
  readonly tarball: string
  readonly files: readonly string[]
}

let project: string
const packed = new Map<string, Packed>()

function packedAs(path: string): Packed {
  const found = packed.get(path)
  if (found === undefined) throw new Error(`npm pack packed nothing of ${path}`)
  return found
}

const readPacked = (file: string, path = libraryPath) =>
  readFileSync(join(project, 'node_modules', packedAs(path).name, file), 'utf8')

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
  return compileProgram([...imports, `export const all: object[] = [${names.join(', ')}]`], options)
}

function compileProgram(
  lines: readonly string[],
  options: object,
  { file = 'consumer.ts', compiler = tsc } = {},
) {
  writeFileSync(join(project, file), lines.join('\n'))
  const compilerOptions = {
    target: 'ES2023',
    strict: true,
    noEmit: true,
    // The declarations that we ship are checked as well.
    skipLibCheck: false,
    ...options,
    // The project of a Node user has these; here they are borrowed.
    typeRoots: [tool('@types')],
    types: ['node'],
  }
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: [file] }))
  return start(process.execPath, [compiler, '-p', project], project)
}

describe('package', () => {
  const specifiers = packages.flatMap((path) => entriesOf(join(root, path)).map(({ specifier }) => specifier))

  beforeAll(() => {
    project = mkdtempSync(join(tmpdir(), 'holdfast-pack-'))
    for (const path of packages) {
      const args = ['pack', '--json', '--pack-destination', project]
      const [one] = Object.values(JSON.parse(run('npm', args, join(root, path)).stdout)) as {
        name: string
        filename: string
        files: { path: string }[]
      }[]
      if (!one) continue
      const { name, filename } = one
      const files = one.files.map(({ path }) => path)
      packed.set(path, { name, tarball: join(project, filename), files })
    }
    writeFileSync(
      join(project, 'package.json'),
      JSON.stringify({ name: 'consumer', type: 'module', private: true }),
    )
    const tarballs = [...packed.values()].map(({ tarball }) => tarball)
    run('npm', ['install', '--offline', '--no-audit', '--no-fund', ...tarballs], project)
  })

  afterAll(() => rmSync(project, { recursive: true, force: true }))

  test.each(packages)('%s contains the build, the documents and the licence, and no tests', (path) => {
    const { files } = packedAs(path)
    const others = files.filter((path) => !/^(dist|docs)\//.test(path))
    expect(others.sort()).toEqual(['LICENSE', 'README.md', 'package.json'])
    expect(files.filter((path) => !/\.(js|d\.ts|md|json|yml)$|^LICENSE$/.test(path))).toEqual([])
    expect(files.filter((path) => /\.test(-d)?\./.test(path))).toEqual([])
  })

  test('the library contains the board, the alerts and their runbook', () => {
    const names = ['README.md', 'alerts.yml', 'grafana.json', 'runbook.md']
    const packed = packedAs(libraryPath).files.filter((path) => path.startsWith('docs/telemetry/'))
    expect(packed.sort()).toEqual(names.map((name) => `docs/telemetry/${name}`))
  })

  test('the library has few files', () => {
    expect(packedAs(libraryPath).files.length).toBeLessThanOrEqual(MOST_FILES)
  })

  test('no part of the library is larger than its allowance', () => {
    const bytes = bytesOfParts(packedAs(libraryPath).files, (file) => readPacked(file), backendsOf(root))
    const tooLarge = [...bytes].filter(([part, size]) => size > (allowances[part] ?? 0))
    expect(tooLarge.map(([part, size]) => `${part}: ${size} bytes of ${allowances[part]}`)).toEqual([])
  })

  test('every backend and recipe of the library has an allowance of its own, and nothing else does', () => {
    const recipes = specifiers.flatMap((specifier) => specifier.match(/recipes\/.*/) ?? [])
    const parts = [...backendsOf(root).map(({ name }) => name), ...recipes]
    expect(Object.keys(allowances).sort()).toEqual([...sharedParts, ...parts].sort())
  })

  test.each(packages)('%s has no source maps that lead nowhere', (path) => {
    const scripts = packedAs(path).files.filter((file) => file.endsWith('.js'))
    expect(scripts.filter((file) => /sourceMappingURL/.test(readPacked(file, path)))).toEqual([])
  })

  test('every link of the library’s README leads somewhere', () => {
    const { files } = packedAs(libraryPath)
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

  test('every link of the library’s documents leads to a file of the package', () => {
    const { files } = packedAs(libraryPath)
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

  // The table in docs/runtimes.md.
  describe.each([
    ['TypeScript 7', tsc, /./],
    // The older compiler takes seconds for each, and differs in the last of them.
    ['TypeScript 6', tool('typescript6/bin/tsc'), /NodeNext|CommonJS/],
  ])('a CommonJS module under %s', (_, compiler, played) => {
    const program = [
      `import { createLocker, type Locker } from 'holdfast'`,
      `import memory = require('holdfast/memory')`,
      `export const locker: Locker = createLocker(memory.memory())`,
    ]
    const compileCommonJs = (options: object) =>
      compileProgram(program, { ...options, skipLibCheck: true }, { file: 'consumer.cts', compiler })

    const works = [
      { module: 'NodeNext' },
      { module: 'Node20' },
      { module: 'Preserve' },
      { module: 'CommonJS', moduleResolution: 'Bundler' },
    ]
    test.for(works.filter(({ module }) => played.test(module)))('requires with %o', (options) => {
      const { status, output } = compileCommonJs(options)
      expect(status, output).toBe(0)
    })

    const refused = [
      { module: 'Node16', error: 'TS1479' },
      { module: 'Node18', error: 'TS1479' },
      { module: 'CommonJS', moduleResolution: 'Node10', error: 'TS510' },
    ]
    test.for(refused.filter(({ module }) => played.test(module)))(
      'does not with %o',
      ({ error, ...options }) => {
        expect(compileCommonJs(options).output).toContain(error)
      },
    )
  })

  test('require() loads every entry point and prints nothing', () => {
    const program = specifiers.map((specifier) => `require('${specifier}')`).join('\n')
    const flags = ['--disable-warning=ExperimentalWarning', '--input-type=commonjs', '--eval', program]
    const { stdout, stderr } = run(process.execPath, flags, project)
    expect(stdout + stderr).toBe('')
  })

  test.for([
    ['lib.dom', 'LockManager', ['ES2024', 'ESNext.Disposable', 'DOM']],
    ['@types/node', `import('node:worker_threads').LockManager`, ['ES2024', 'ESNext.Disposable']],
  ] as const)('Web Locks are assignable to LockManager of %s', ([, type, lib]) => {
    const program = [
      `import type { AnyLocker, Locker } from 'holdfast'`,
      `import { webLocks } from 'holdfast/web-locks'`,
      `declare const lockers: { readonly one: Locker; readonly unfenced: Locker<'unfenced'>; readonly any: AnyLocker }`,
      `declare function program(locks: ${type}): Promise<void>`,
      `export const runs = [lockers.one, lockers.any].map((locker) => program(webLocks(locker)))`,
      `export const run = program(webLocks(lockers.unfenced))`,
      `// @ts-expect-error a locker is no lock manager`,
      `program(lockers.one)`,
    ]
    const { status, output } = compileProgram(program, { module: 'NodeNext', lib })
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

  test('npx holdfast works in the folder that the tarball was installed in', () => {
    const npx = (...args: string[]) => start('npx', ['--no-install', 'holdfast', ...args], project)
    const { version } = JSON.parse(readPacked('package.json'))
    expect(npx('--version').stdout).toBe(`${version}\n`)
    const command = ['--', 'sh', '-c', 'echo $HOLDFAST_NAME; exit 3']
    const { status, stdout } = npx('run', 'x', '--url', 'sqlite:locks.db', ...command)
    expect([status, stdout]).toEqual([3, 'x\n'])
  })

  test('the licence of what is bundled into the command line stands beside it', () => {
    expect(readPacked('dist/cli/THIRD-PARTY.md')).toMatch(
      /## commander \d+[\s\S]*Permission is hereby granted/,
    )
  })

  test.each(packages)('publint finds nothing in %s', (path) => {
    const { tarball } = packedAs(path)
    run(process.execPath, [tool('publint/src/cli.js'), 'run', tarball, '--strict'], project)
  })

  test.each(packages)('attw finds nothing in %s', (path) => {
    const { tarball } = packedAs(path)
    const attw = tool('@arethetypeswrong/cli/dist/index.js')
    run(process.execPath, [attw, tarball, '--profile', 'esm-only'], project)
  })
})
