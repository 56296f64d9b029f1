// Programs in the documents that say on which engine they run.

import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { startPostgres, startRedis } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { cache, filesUnder, pathFrom, root } from '../lib/repository.ts'
import { blocksOf, modulesOf } from './docs-blocks.ts'

const engines = {
  sqlite: { variable: 'UNUSED', start: async () => ({ url: '', stop: async () => {} }) },
  redis: { variable: 'REDIS_URL', start: startRedis },
  postgres: { variable: 'DATABASE_URL', start: startPostgres },
}

const programs = filesUnder(join(root, 'docs'), (path) => path.endsWith('.md')).flatMap((document) =>
  modulesOf(blocksOf(readFileSync(document, 'utf8'))).flatMap(({ engine, lines, origin }) =>
    engine === undefined ? [] : [{ document, engine, text: lines.join('\n'), line: origin[0] ?? 1 }],
  ),
)

test('every program names an engine that there is', () => {
  expect(programs.length).toBeGreaterThan(0)
  for (const { engine } of programs) expect(Object.keys(engines)).toContain(engine)
})

describe.each(Object.entries(engines))('programs on %s', (name, { variable, start }) => {
  let server: Awaited<ReturnType<typeof start>>
  beforeAll(async () => {
    server = await start()
  })
  afterAll(() => server?.stop())

  const own = programs.filter(({ engine }) => engine === name)
  test.each(
    own.map((program) => ({ ...program, place: `${pathFrom(root, program.document)}:${program.line}` })),
  )('$place', async ({ document, line, text }) => {
    const folder = join(cache, 'docs-run')
    mkdirSync(folder, { recursive: true })
    const file = join(folder, `${basename(document, '.md')}-${line}.ts`)
    writeFileSync(file, `${text}\n`)
    const { code, said } = await run(file, { [variable]: server.url })
    expect(code, said).toBe(0)
    expect(said).not.toBe('')
  })
})

function run(
  file: string,
  environment: Record<string, string>,
): Promise<{ code: number | null; said: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-docs-'))
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', file], {
    cwd: folder,
    env: { ...process.env, ...environment },
  })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data: Buffer) => (said += String(data)))
  return new Promise((resolve) =>
    child.on('close', (code) => {
      rmSync(folder, { recursive: true, force: true })
      resolve({ code, said })
    }),
  )
}
