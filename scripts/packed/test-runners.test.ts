// The examples of docs/testing.md for Jest and for the fake timers of vitest, run as they are printed there.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { packedProject, runProgram } from '../lib/packed-project.ts'
import { root, vitest } from '../lib/repository.ts'

const page = readFileSync(join(root, 'docs/testing.md'), 'utf8')

/** The first block of this language below a heading. */
function example(heading: string, language: string): string {
  const [, section = ''] = page.split(`## ${heading}\n`)
  const [, text] = new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 's').exec(section) ?? []
  if (text === undefined) throw new Error(`docs/testing.md has no ${language} example below "${heading}"`)
  return text
}

const jest = join(root, 'node_modules/jest/bin/jest.js')
const required = example('Jest', 'js')
const [loads = ''] = required.split('\n')

/** Stock Jest, in a project of CommonJS. */
function jestProject(text: string) {
  const project = packedProject()
  project.write('package.json', JSON.stringify({ name: 'project', private: true }))
  project.write('sku.test.js', text)
  const command = JSON.parse(example('Jest', 'json')).scripts.test as string
  const [, NODE_OPTIONS = ''] = /^NODE_OPTIONS=(\S+) jest$/.exec(command) ?? []
  const run = (env: Record<string, string>) =>
    runProgram(process.execPath, [jest, '--rootDir', '.'], { cwd: project.folder, env })
  return { run, NODE_OPTIONS }
}

test('Jest runs the example, with the flag that the document names, and not without it', async () => {
  const { run, NODE_OPTIONS } = jestProject(required)
  const { status, stderr } = await run({ NODE_OPTIONS })
  expect(stderr).toContain('1 passed')
  expect(status).toBe(0)
  expect((await run({})).stderr).toContain('Must use import to load ES Module')
})

test('Jest runs the example with import() inside of the test', async () => {
  const inside = loads.replace(/require\((.*)\)/, 'await import($1)')
  const { run, NODE_OPTIONS } = jestProject(
    required.replace(loads, '').replace('  jest.useFakeTimers()', `  ${inside}\n  jest.useFakeTimers()`),
  )
  const { status, stderr } = await run({ NODE_OPTIONS })
  expect(stderr).toContain('1 passed')
  expect(status).toBe(0)
})

test('vitest runs the example with fake timers', async () => {
  const project = packedProject({ packages: ['vitest'] })
  project.write('reminders.test.ts', example('Fake timers of the test runner', 'ts'))
  const { status, stdout, stderr } = await runProgram(process.execPath, [vitest, 'run'], {
    cwd: project.folder,
  })
  expect(stdout, stderr).toContain('1 passed')
  expect(status).toBe(0)
})
