// `npm run lab`.

import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { identify, isAlive, treeOf } from '../servers/processes.ts'
import { catalogue } from './catalogue.ts'
import { engineNames } from './engines/index.ts'
import { onLinux } from './expectations.ts'

const run = (options: string[], environment: NodeJS.ProcessEnv = {}) =>
  promisify(execFile)(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, '../../scripts/lab.ts'), ...options],
    { env: { ...process.env, ...environment } },
  )

test('npm run lab explains itself', async () => {
  const { stdout } = await run(['--help'])
  for (const name of [...Object.keys(catalogue), ...engineNames]) expect(stdout).toContain(name)
})

test.each([
  'pause abacus',
  'daydream sqlite',
  'pause sqlite twice',
  'pause sqlite --seconds 0',
  'lost-update sqlite --seconds few',
  'pause sqlite --seed 7',
  // There is no clock but the machine's own, no server and no network.
  'clock-jump sqlite',
  'failover sqlite',
])('npm run lab refuses what it does not know: %s', async (options) => {
  await expect(run(options.split(' '))).rejects.toMatchObject({ code: 64 })
})

onLinux('an interrupted run leaves neither files nor processes behind', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'lab-test-'))
  try {
    const left = () => readdirSync(folder).filter((name) => name.startsWith('holdfast-lab-'))
    const running = run(['pause', 'sqlite'], { TMPDIR: folder })
    const interrupted = expect(running).rejects.toMatchObject({ code: 130 })
    // The progress tells when a client has been stopped: a stopped one is the hardest to end.
    await new Promise<void>((resolve) =>
      running.child.stderr?.on('data', (line) => {
        if (String(line).includes('is stopped')) resolve()
      }),
    )
    const clients = treeOf(running.child.pid ?? 0)
      .slice(1)
      .map(identify)
      .filter((client) => client !== null)
    expect(clients.length).toBeGreaterThan(0)
    running.child.kill('SIGINT')
    await interrupted
    expect(left()).toEqual([])
    await expect.poll(() => clients.filter(isAlive)).toEqual([])
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
