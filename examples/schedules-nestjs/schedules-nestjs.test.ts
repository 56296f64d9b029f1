import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const run = promisify(execFile)

test('a @Cron method of NestJS is compiled, and runs on one of two replicas', async () => {
  const tsc = createRequire(import.meta.url).resolve('typescript6/bin/tsc')
  await run(process.execPath, [tsc, '-p', import.meta.dirname])
  const { stdout } = await run(process.execPath, [join(import.meta.dirname, 'dist', 'main.js')])
  expect(stdout.trim()).toBe('Each tick ran on one of two replicas.')
})
