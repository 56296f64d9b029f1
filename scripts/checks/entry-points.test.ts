import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { filesUnder, library } from '../lib/repository.ts'

/** The command itself: it runs when it is loaded. */
const command = join('cli', 'main.js')

test('every file of the build loads in this Node, and says nothing', async () => {
  const files = filesUnder(join(library, 'dist'), (path) => path.endsWith('.js') && !path.endsWith(command))
  expect(files.length).toBeGreaterThan(100)
  const program = `for (const file of ${JSON.stringify(files.map((path) => pathToFileURL(path).href))})
    await import(file).catch((error) => console.log(file, error.message))`
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [
    ...['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', program],
  ])
  expect(stdout + stderr).toBe('')
})
