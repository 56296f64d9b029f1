/** `npm run bench -- recipes`: what the recipes cost, on each engine. */
import { mkdtempSync, readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { startBackend } from '../backend.ts'
import { type Machine, machineInWords } from '../machine.ts'
import { markdownTable, type Row, textTable } from '../report.ts'
import type { Place } from '../subject.ts'
import type { Figures, RecipeBench, RecipeEngine } from './recipe-bench.ts'

export interface RecipesResult {
  readonly engine: string
  readonly recipes: readonly { readonly recipe: string; readonly figures: readonly Figures[] }[]
  readonly remarks: readonly string[]
}

export interface RecipesReport {
  readonly machine: Machine
  readonly results: readonly RecipesResult[]
}

const parts = new Set(['recipe-bench.ts', 'run.ts'])
const files = readdirSync(import.meta.dirname).filter((file) => /^[\w-]+\.ts$/.test(file) && !parts.has(file))

type UrlOf = (place: Place, folder: string) => string

const urls: Readonly<Record<string, UrlOf>> = {
  sqlite: (_, folder) => `sqlite:${join(folder, 'locks.db')}`,
  redis: ({ urls: [url], namespace }) => `${url}?fencing=clock-backed&namespace=${namespace}`,
  postgres: ({ urls: [url], namespace }) => `${url}?namespace=${namespace}`,
  etcd: ({ urls, namespace }) => {
    const hosts = urls.map((url) => new URL(url).host)
    return `etcd://${hosts.join(',')}?namespace=${namespace}`
  },
}

export async function runRecipes(
  name: string,
  parent: string,
  only: string | undefined,
  progress: (what: string) => void,
): Promise<RecipesResult> {
  const backend = await startBackend(name)
  const recipes: RecipesResult['recipes'][number][] = []
  try {
    for (const file of files) {
      const recipe = basename(file, '.ts')
      if (only !== undefined && !recipe.includes(only)) continue
      const folder = mkdtempSync(join(parent, `${name}-${recipe}-`))
      const url = urls[name]?.(await backend.place(recipe), folder)
      if (url === undefined) throw new Error(`Recipes are not measured on ${name}.`)
      const engine: RecipeEngine = { name, url }
      const { bench } = (await import(join(import.meta.dirname, file))) as { bench: RecipeBench }
      const figures = await bench.run(engine, (what) => progress(`${name}: ${recipe}, ${what}`))
      recipes.push({ recipe, figures })
    }
  } finally {
    await backend.stop()
  }
  return { engine: name, recipes, remarks: backend.remarks }
}

export function recipesInWords({ machine, results }: RecipesReport): string {
  return [...results.flatMap((result) => partsOf(result, textTable, '')), `${machineInWords(machine)}.`].join(
    '\n\n',
  )
}

export function recipesAsMarkdown({ machine, results }: RecipesReport): string {
  const own = results.flatMap((result) => partsOf(result, markdownTable, '## '))
  return ['# Recipes', ...own, `${machineInWords(machine)}.\n`].join('\n\n')
}

function partsOf(
  { engine, recipes, remarks }: RecipesResult,
  table: (rows: readonly Row[]) => string,
  heading: string,
): string[] {
  return [
    ...recipes.flatMap(({ figures }) =>
      figures.flatMap((each) => [
        `${heading}${engine}: ${each.title}`,
        table(each.rows),
        ...(each.remarks.length === 0 ? [] : [each.remarks.map((remark) => `${remark}.`).join(' ')]),
      ]),
    ),
    ...(remarks.length === 0 ? [] : [remarks.map((remark) => `${remark}.`).join(' ')]),
  ]
}
