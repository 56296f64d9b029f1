// Builds each package into its folder `dist`: the modules with rolldown, the declarations with the compiler.
// Modules that several entry points share become few files, because each file costs time at import. The code is
// minified; comments stay in the declarations only, where editors show them.
//
// The folder is never emptied first, so that a program that runs from the old build meanwhile keeps its files.

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { type OutputOptions, rolldown } from 'rolldown'
import { parseAst } from 'rolldown/parseAst'
import { commandLinePath, libraryPath, packages, pathFrom, root, tsc } from './lib/repository.ts'
import { entriesOf } from './lib/surface.ts'

const LINE_LENGTH = 120

const outputOptions: OutputOptions = {
  format: 'esm',
  entryFileNames: '[name].js',
  // Bundlers of users read the annotations.
  comments: { annotation: true, legal: false, jsdoc: false },
  // The package stays small (pack.test.ts has the limit). Functions and classes keep their names for stack traces.
  minify: {
    compress: true,
    mangle: { toplevel: true, keepNames: { function: true, class: true } },
    codegen: { removeWhitespace: true },
  },
}

for (const path of packages) {
  const files = await build(join(root, path))
  console.error(`build: ${files} files in ${path}/dist`)
}

async function build(folder: string): Promise<number> {
  const dist = join(folder, 'dist')
  const entries = entriesOf(folder).map(({ declarations }) => declarations)
  compileDeclarations(folder)
  const kept = new Set([...(await bundleModules(folder, entries)), ...reachable(entries)])
  if (folder === join(root, libraryPath)) for (const path of await bundleCommandLine(dist)) kept.add(path)
  for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name)
    if (entry.isFile() && !kept.has(path)) rmSync(path)
  }
  return kept.size
}

function compileDeclarations(folder: string): void {
  const args = [tsc, '-p', join(folder, 'tsconfig.build.json'), '--pretty', 'false']
  const { status } = spawnSync(process.execPath, args, { stdio: 'inherit', cwd: root })
  if (status !== 0) process.exit(status ?? 1)
}

async function bundleModules(folder: string, entries: readonly string[]): Promise<string[]> {
  const dist = join(folder, 'dist')
  const input = Object.fromEntries(
    entries
      .map((path) => pathFrom(dist, path).replace(/\.d\.ts$/, ''))
      .map((name) => [name, join(folder, 'src', `${name}.ts`)]),
  )
  const bundle = await rolldown({
    input,
    platform: 'node',
    cwd: folder,
    // It has nothing to export; what it does at import matters.
    treeshake: { moduleSideEffects: [{ test: /node-version\.ts$/, sideEffects: true }] },
    plugins: [{ name: 'no-comments-in-scripts', transform: withoutComments }],
  })
  const { output } = await bundle.write({
    ...outputOptions,
    dir: dist,
    chunkFileNames: 'shared/[name].js',
    // Code that nearly all entry points need is one file.
    codeSplitting: {
      groups: [{ name: 'base', test: /[\\/]src[\\/](base|kit|locker|spi)/, minShareCount: 8 }],
    },
  })
  for (const { fileName } of output) breakLines(join(dist, fileName))
  return output.map(({ fileName }) => join(dist, fileName))
}

/** The command `holdfast`, with its parser in it. It imports the library by its public entry points, as any program does. */
async function bundleCommandLine(library: string): Promise<string[]> {
  const folder = join(root, commandLinePath)
  const dir = join(library, 'cli')
  const bundle = await rolldown({
    input: { main: join(folder, 'src/main.ts') },
    platform: 'node',
    cwd: folder,
    external: /^holdfast($|\/)/,
  })
  const { output } = await bundle.write({ ...outputOptions, dir, chunkFileNames: '[name].js' })
  for (const { fileName } of output) breakLines(join(dir, fileName))
  const parser = dirname(createRequire(join(folder, 'package.json')).resolve('commander'))
  const { name, version, license } = JSON.parse(readFileSync(join(parser, 'package.json'), 'utf8'))
  const notice = `# Third-party software in this folder\n\n## ${name} ${version} (${license})\n\n`
  writeFileSync(join(dir, 'THIRD-PARTY.md'), notice + readFileSync(join(parser, 'LICENSE'), 'utf8'))
  return [...output.map(({ fileName }) => fileName), 'THIRD-PARTY.md'].map((file) => join(dir, file))
}

/** Removes whole lines of comment from the Lua and SQL in a module, and shortens its indentation to one space. */
function withoutComments(code: string): string | null {
  return /^ *-- /m.test(code) ? code.replace(/^ *-- .*\n/gm, '').replace(/^ +/gm, ' ') : null
}

/**
 * Node prints the line of an error that is not caught: it must not be the whole file. A line ends where a statement or a
 * member of a class begins, if it is long enough.
 */
function breakLines(path: string): void {
  const code = readFileSync(path, 'utf8')
  const starts: number[] = []
  const visit = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return
    if ('kind' in node && /using$/.test(String(node.kind)))
      throw new Error(`${path} has ${node.kind}, which Node 22 does not parse: write try and finally`)
    if ('body' in node && Array.isArray(node.body)) starts.push(...node.body.map(({ start }) => start))
    for (const child of Object.values(node)) visit(child)
  }
  visit(parseAst(code))
  let broken = ''
  let from = 0
  for (const start of starts.sort((a, b) => a - b)) {
    if (start - from < LINE_LENGTH) continue
    broken += `${code.slice(from, start)}\n`
    from = start
  }
  writeFileSync(path, broken + code.slice(from))
}

/** The declarations that users can get to from these; the compiler writes those of internal files as well. */
function reachable(declarations: readonly string[]): Set<string> {
  const found = new Set<string>()
  const visit = (path: string) => {
    if (found.has(path)) return
    found.add(path)
    for (const [, from = ''] of readFileSync(path, 'utf8').matchAll(
      /(?:from|import)[ (]+['"](\.[^'"]+)\.ts['"]/g,
    ))
      visit(resolve(dirname(path), `${from}.d.ts`))
  }
  for (const path of declarations) visit(path)
  return found
}
