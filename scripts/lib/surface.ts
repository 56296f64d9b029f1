// The public surface of a package, read from its emitted declarations: what every entry point exports, followed
// through all re-exports, without comments.

import { readFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { descendants, ts } from './syntax.ts'

export interface Entry {
  /** As users import it: `holdfast/memory`. */
  readonly specifier: string
  readonly declarations: string
}

interface Manifest {
  name: string
  exports: Record<string, string | { types: string }>
}

export function entriesOf(packageFolder: string): Entry[] {
  const manifest: Manifest = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8'))
  return Object.entries(manifest.exports).flatMap(([path, target]) =>
    typeof target === 'string'
      ? []
      : [{ specifier: manifest.name + path.slice(1), declarations: join(packageFolder, target.types) }],
  )
}

/** The text of each entry's record. */
export function describeSurface(packageFolder: string): Map<string, string> {
  const entries = entriesOf(packageFolder)
  const program = ts.createProgram({
    rootNames: entries.map(({ declarations }) => declarations),
    options: {
      module: ts.ModuleKind.NodeNext,
      target: ts.ScriptTarget.ES2023,
      lib: ['lib.es2024.d.ts', 'lib.esnext.disposable.d.ts'],
      types: [],
      skipLibCheck: true,
      noEmit: true,
    },
  })
  const checker = program.getTypeChecker()
  const exports = new Map(entries.map((entry) => [entry.specifier, exportsOf(program, entry)]))
  const everywhere = new Set([...exports.values()].flatMap((names) => [...names.values()]))

  return new Map(
    [...exports].map(([specifier, names]) => {
      const hidden = hiddenIn([...names.values()], checker, packageFolder, everywhere)
      return [specifier, render(specifier, names, hidden)]
    }),
  )
}

function exportsOf(program: ts.Program, { declarations }: Entry): Map<string, ts.Symbol> {
  const checker = program.getTypeChecker()
  const file = program.getSourceFile(declarations)
  if (!file) throw new Error(`${declarations} is missing; build the package first`)
  const module = checker.getSymbolAtLocation(file)
  const symbols = module ? checker.getExportsOfModule(module) : []
  return sortedByName(symbols.map((symbol) => [symbol.name, resolved(symbol, checker)]))
}

/** Types that the exported declarations mention but no entry point exports: users meet them without a name. */
function hiddenIn(
  exported: readonly ts.Symbol[],
  checker: ts.TypeChecker,
  packageFolder: string,
  everywhere: ReadonlySet<ts.Symbol>,
): Map<string, ts.Symbol> {
  const hidden = new Set<ts.Symbol>()
  const queue = [...exported]
  for (let symbol = queue.pop(); symbol; symbol = queue.pop()) {
    for (const node of declarationsOf(symbol).flatMap((declaration) => [...descendants(declaration)])) {
      const used = ts.isIdentifier(node) && checker.getSymbolAtLocation(node)
      if (!used) continue
      const target = resolved(used, checker)
      if (everywhere.has(target) || hidden.has(target) || !isTopLevelOf(target, packageFolder)) continue
      hidden.add(target)
      queue.push(target)
    }
  }
  return sortedByName([...hidden].map((symbol) => [symbol.name, symbol]))
}

function resolved(symbol: ts.Symbol, checker: ts.TypeChecker): ts.Symbol {
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol
}

function isTopLevelOf(symbol: ts.Symbol, packageFolder: string): boolean {
  const nodes = declarationsOf(symbol)
  return (
    nodes.length > 0 &&
    nodes.every(
      (node) =>
        node.parent &&
        ts.isSourceFile(node.parent) &&
        node.getSourceFile().fileName.startsWith(packageFolder + sep),
    )
  )
}

/** The statements that declare a symbol: all overloads, all merged interfaces. */
function declarationsOf(symbol: ts.Symbol): ts.Node[] {
  return (symbol.declarations ?? []).map((node) =>
    ts.isVariableDeclaration(node) && ts.isVariableStatement(node.parent.parent) ? node.parent.parent : node,
  )
}

function sortedByName(pairs: [string, ts.Symbol][]): Map<string, ts.Symbol> {
  return new Map(pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
}

const printer = ts.createPrinter({ removeComments: true, newLine: ts.NewLineKind.LineFeed })

function render(specifier: string, names: Map<string, ts.Symbol>, hidden: Map<string, ts.Symbol>): string {
  const parts = [
    `# ${specifier}`,
    'What users can import from here. Written by `npm run api` and compared in the tests: a change is made on purpose.',
    ...[...names].flatMap(([name, symbol]) => [`## ${name}`, code(symbol, name)]),
  ]
  if (hidden.size > 0) {
    parts.push('# Mentioned above, exported nowhere')
    parts.push(...[...hidden].flatMap(([name, symbol]) => [`## ${name}`, code(symbol, name)]))
  }
  return `${parts.join('\n\n')}\n`
}

function code(symbol: ts.Symbol, name: string): string {
  const texts = declarationsOf(symbol).map((node) =>
    ts.isSourceFile(node)
      ? `namespace ${name}`
      : printer.printNode(ts.EmitHint.Unspecified, node, node.getSourceFile()),
  )
  const lines = texts.map((text) => text.replace(/^(export |default |declare )+/, ''))
  return ['```ts', ...lines, '```'].join('\n')
}
