import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

test('each night is run by exactly one of three replicas', async () => {
  // It checks itself and fails when a job ran twice; here it is enough that it says what it found.
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--disable-warning=ExperimentalWarning',
    join(import.meta.dirname, 'main.ts'),
  ])
  expect(stdout.trim().split('\n')).toEqual([
    expect.stringMatching(/^2026-11-14: replica-\d ran the job; replica-\d and replica-\d found it done\.$/),
    expect.stringMatching(/^2026-11-15: replica-\d ran the job; replica-\d and replica-\d found it done\.$/),
  ])
})
