/** Tables of options in the recipes' pages: each has all options of the types that its head names, and no others. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { library, root } from '../lib/repository.ts'
import { ts } from '../lib/syntax.ts'

const pages = join(root, 'docs/recipes')
const recipes = readdirSync(pages).map((file) => file.replace(/\.md$/, ''))
const sourceOf = (recipe: string) => join(library, `src/recipes/${recipe}.ts`)

type Options = Record<string, readonly string[]>

const program = ts.createProgram({
  rootNames: recipes.map(sourceOf),
  options: {
    module: ts.ModuleKind.NodeNext,
    allowImportingTsExtensions: true,
    // Enough for `Pick`: only the names of properties are asked for.
    lib: ['lib.es5.d.ts'],
    types: [],
    noEmit: true,
  },
})

/** Properties of the exported types that are called `…Options`, also of those that they extend. */
function declared(recipe: string): Options {
  const checker = program.getTypeChecker()
  const file = program.getSourceFile(sourceOf(recipe))
  const module = file && checker.getSymbolAtLocation(file)
  if (!module) throw new Error(`${recipe} has no source with exports`)
  const options = checker.getExportsOfModule(module).filter(({ name }) => name.endsWith('Options'))
  return Object.fromEntries(
    options.map((symbol) => {
      const isAlias = (symbol.flags & ts.SymbolFlags.Alias) !== 0
      const type = checker.getDeclaredTypeOfSymbol(isAlias ? checker.getAliasedSymbol(symbol) : symbol)
      const names = checker.getPropertiesOfType(type).map(({ name }) => name)
      return [symbol.name, names.sort()]
    }),
  )
}

/** First cells of the tables whose head is ``option of `SomeOptions` ``, or of several types: then all of them have these options. */
function documented(page: string): Options {
  const found: Record<string, string[]> = {}
  for (const [table] of page.matchAll(/^\| option .*\n(\|.*\n)+/gm)) {
    const [head = '', , ...rows] = table.split('\n').map((line) => line.split('|')[1] ?? '')
    const names = rows.flatMap((cell) => [...cell.matchAll(/`(\w+)/g)].map(([, name = '']) => name))
    const types = [...head.matchAll(/`(\w+)`/g)].map(([, type = '']) => type)
    expect(types, `the head "${head}" names a type`).not.toEqual([])
    for (const type of types) found[type] = [...(found[type] ?? []), ...names].sort()
  }
  return found
}

test.each(recipes)('the page of %s has each option of the recipe in a table, and no other', (recipe) => {
  expect(documented(readFileSync(join(pages, `${recipe}.md`), 'utf8'))).toEqual(declared(recipe))
})

test('the types are read', () => {
  expect(declared('election').ServeOptions).toEqual(['onJeopardy', 'signal'])
  expect(declared('reentrant')).toEqual({})
})
