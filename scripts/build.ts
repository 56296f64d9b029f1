// Builds the library into packages/holdfast/dist: the modules with rolldown, the declarations with the compiler.
// Modules that several entry points share become few files, because each file costs time at import. The code is
// minified; comments stay in the declarations only, where editors show them.
//
// The folder is never emptied first, so that a program that runs from the old build meanwhile keeps its files.

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { rolldown } from 'rolldown'
import { pathFrom, root, tsc } from './lib/repository.ts'
import { entriesOf } from './lib/surface.ts'

const library = join(root, 'packages/holdfast')
const dist = join(library, 'dist')
const entries = entriesOf(library).map(({ declarations }) => declarations)

compileDeclarations()
const kept = new Set([...(await bundleModules()), ...reachable(entries)])
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath, entry.name)
  if (entry.isFile() && !kept.has(path)) rmSync(path)
}
console.error(`build: ${kept.size} files in packages/holdfast/dist`)

function compileDeclarations(): void {
  const args = [tsc, '-p', join(library, 'tsconfig.build.json'), '--pretty', 'false']
  const { status } = spawnSync(process.execPath, args, { stdio: 'inherit', cwd: root })
  if (status !== 0) process.exit(status ?? 1)
}

async function bundleModules(): Promise<string[]> {
  const input = Object.fromEntries(
    entries
      .map((path) => pathFrom(dist, path).replace(/\.d\.ts$/, ''))
      .map((name) => [name, join(library, 'src', `${name}.ts`)]),
  )
  const bundle = await rolldown({
    input,
    platform: 'node',
    cwd: library,
    // It has nothing to export; what it does at import matters.
    treeshake: { moduleSideEffects: [{ test: /node-version\.ts$/, sideEffects: true }] },
  })
  const { output } = await bundle.write({
    dir: dist,
    format: 'esm',
    entryFileNames: '[name].js',
    chunkFileNames: 'shared/[name].js',
    // Bundlers of users read the annotations.
    comments: { annotation: true, legal: false, jsdoc: false },
    // The package stays below 400 kB. Functions and classes keep their names for stack traces.
    minify: {
      compress: true,
      mangle: { toplevel: false, keepNames: { function: true, class: true } },
      codegen: { removeWhitespace: true },
    },
    codeSplitting: {
      groups: [
        { name: 'node-version', test: /node-version\.ts$/, priority: 1 },
        // What nearly all entry points need is one file.
        { name: 'base', test: /[\\/]src[\\/](base|kit|locker|spi)/, minShareCount: 8 },
      ],
    },
  })
  showOnly(join(dist, 'shared/node-version.js'), 'throw ')
  return output.map(({ fileName }) => join(dist, fileName))
}

/** Node prints the source line of an error that is not caught: this makes it a short one. */
function showOnly(path: string, statement: string): void {
  writeFileSync(path, readFileSync(path, 'utf8').replace(statement, `\n${statement}`))
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
