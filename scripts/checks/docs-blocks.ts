// TypeScript blocks in the documents compile against the built package.
//
// Each block is a module of its own. ```ts continued takes the module of the block before it further, for a
// text that explains one program in steps. A block that starts with `// not compiled: <reason>` is left out. ```ts run:redis
// is a program that `docs-run.test.ts` runs, on a server whose address is in the environment.

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { type Complaint, finish } from '../lib/report.ts'
import { cache, filesUnder, pathFrom, root, tsc } from '../lib/repository.ts'

export interface Block {
  readonly text: string
  /** The line of the document that the block's first line stands on. */
  readonly line: number
  readonly continued: boolean
  /** The engine on which the program is run; undefined: it is only compiled. */
  readonly engine: string | undefined
}

const fence = /^(?<indent>\s*)(?<ticks>`{3,})(?:ts|typescript)(?<rest>\s.*)?$/

export function blocksOf(markdown: string): Block[] {
  const blocks: Block[] = []
  const lines = markdown.split('\n')
  for (let index = 0; index < lines.length; index++) {
    const start = fence.exec(lines[index] ?? '')?.groups
    if (!start) continue
    const { indent = '', ticks = '```', rest = '' } = start
    const text: string[] = []
    const line = index + 2
    while (++index < lines.length && lines[index]?.trim() !== ticks) {
      text.push((lines[index] ?? '').replace(new RegExp(`^\\s{0,${indent.length}}`), ''))
    }
    const [, engine] = /^run:(\w+)$/.exec(rest.trim()) ?? []
    blocks.push({ text: text.join('\n'), line, continued: rest.trim() === 'continued', engine })
  }
  return blocks
}

interface Module {
  readonly engine: string | undefined
  readonly lines: string[]
  /** For each line of the module, its line in the document. */
  readonly origin: number[]
}

/** The modules of one document. Blocks that are left out still end what could be continued. */
export function modulesOf(blocks: readonly Block[]): Module[] {
  const modules: Module[] = []
  let current: Module | null = null
  for (const { text, line, continued, engine } of blocks) {
    if (/^\/\/ not compiled: \S/.test(text)) {
      current = null
      continue
    }
    if (!continued || !current) {
      current = { engine, lines: [], origin: [] }
      modules.push(current)
    }
    for (const [index, content] of text.split('\n').entries()) {
      current.lines.push(content)
      current.origin.push(line + index)
    }
  }
  return modules
}

/** Compiles the blocks of all documents in one go. `work` must lie in the repository, to resolve the package. */
export function checkBlocks(folder: string, documents: readonly string[], work: string) {
  rmSync(work, { recursive: true, force: true })
  mkdirSync(work, { recursive: true })
  const sources = new Map<string, { file: string; origin: number[] }>()
  for (const [index, document] of documents.entries()) {
    const modules = modulesOf(blocksOf(readFileSync(document, 'utf8')))
    for (const { lines, origin } of modules) {
      const name = `${index}-${basename(document, '.md')}-${origin[0]}.ts`
      writeFileSync(join(work, name), `${lines.join('\n')}\nexport {}\n`)
      sources.set(name, { file: pathFrom(folder, document), origin })
    }
  }
  if (sources.size === 0) return { count: 0, complaints: [] }

  const config = {
    extends: relative(work, join(root, 'tsconfig.base.json')),
    compilerOptions: { noEmit: true },
  }
  writeFileSync(join(work, 'tsconfig.json'), JSON.stringify(config))
  const run = spawnSync(process.execPath, [tsc, '-p', work, '--pretty', 'false'], {
    encoding: 'utf8',
    cwd: work,
  })
  const complaints: Complaint[] = []
  for (const line of run.stdout.split('\n')) {
    const {
      name = '',
      at,
      message = line,
    } = /^(?<name>[^(]+)\((?<at>\d+),\d+\): (?<message>.*)$/.exec(line)?.groups ?? {}
    const source = sources.get(basename(name))
    if (source) {
      complaints.push({ file: source.file, line: source.origin[Number(at) - 1] ?? 1, message })
    } else if (line.trim() !== '') {
      // A further line of the message before, or a complaint about something that no document contains.
      complaints.push({ file: line.startsWith(' ') ? '  ' : 'tsc', message })
    }
  }
  if (run.status !== 0 && complaints.length === 0) {
    complaints.push({ file: 'tsc', message: `failed: ${run.stdout}${run.stderr}` })
  }
  return { count: sources.size, complaints }
}

if (import.meta.main) {
  const documents = [
    ...['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md'].map((name) => join(root, name)).filter(existsSync),
    ...['docs', 'lab'].flatMap((folder) => filesUnder(join(root, folder), (path) => path.endsWith('.md'))),
  ]
  const { count, complaints } = checkBlocks(root, documents, join(cache, 'docs-blocks'))
  finish('docs-blocks', complaints, `${count} programs in ${documents.length} documents compile`)
}
