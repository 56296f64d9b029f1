// A user's view of an older Node. The older Node is pretended: another version in process.versions, and no node:sqlite.

import { expect, test } from 'vitest'
import { packedProject, runProgram } from '../lib/packed-project.ts'
import { library } from '../lib/repository.ts'
import { entriesOf } from '../lib/surface.ts'

const specifiers = entriesOf(library).map(({ specifier }) => specifier)

test.each(['20.20.2', '22.12.0'])(
  'on Node %s every entry point says in one sentence what is needed',
  async (version) => {
    const { folder, write } = packedProject()
    const older = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })`
    const program = write(
      'program.js',
      `for (const specifier of ${JSON.stringify(specifiers)})
       await import(specifier).then(() => console.log(specifier, 'was loaded'), (error) => console.log(error.message))`,
    )
    const flags = [
      '--no-experimental-sqlite',
      '--import',
      `data:text/javascript,${encodeURIComponent(older)}`,
    ]
    const { stdout, stderr } = await runProgram(process.execPath, [...flags, program], { cwd: folder })
    expect(stderr).toBe('')
    const sentences = new Set(stdout.trim().split('\n'))
    expect([...sentences]).toEqual([`holdfast needs Node 22.13 or newer, and this is Node ${version}.`])
  },
)

test('on an older Node a program that just imports it ends with that sentence and little else', async () => {
  const { folder, write } = packedProject()
  const older = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '20.20.2' } })`
  const program = write('importing.js', `import { createLocker } from 'holdfast'\ncreateLocker()`)
  const flags = ['--import', `data:text/javascript,${encodeURIComponent(older)}`]
  const { stderr } = await runProgram(process.execPath, [...flags, program], { cwd: folder }).catch(
    (error) => error,
  )
  expect(stderr).toContain('holdfast needs Node 22.13 or newer, and this is Node 20.20.2.')
  expect(stderr.length).toBeLessThan(1_000)
})
