import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { checkComplete } from './complete.ts'

const folders: string[] = []
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
})

const whole: Readonly<Record<string, string>> = {
  'packages/holdfast/src/backends/acme/index.ts': '',
  'packages/holdfast/package.json': '{ "exports": { "./acme": {} } }',
  'packages/holdfast/src/open.ts': "import('./backends/acme/index.ts')",
  'packages/holdfast/test/conformance/acme.test.ts': 'describeBackend({})',
  'docs/backends/acme.md': '# acme',
  'docs/README.md': '[acme](backends/acme.md)',
  'README.md': '[acme](docs/backends/acme.md)',
  'bench/subjects/acme.ts': 'export {}',
}

function repository(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-complete-'))
  folders.push(folder)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
  return folder
}

test('a backend with all that belongs to one passes', () => {
  expect(checkComplete(repository(whole), ['core', 'acme'])).toEqual([])
})

test('each thing that is missing is named', () => {
  for (const path of Object.keys(whole).filter((each) => !each.includes('/src/backends/'))) {
    const { [path]: _, ...rest } = whole
    expect(checkComplete(repository(rest), ['acme']).map(({ file }) => file)).toEqual([path])
  }
  expect(checkComplete(repository(whole), ['core'])).toHaveLength(1)
})
