// The command `holdfast` of the packed package, in a project that has nothing else but the client that it names.

import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { startRedis, wanted } from 'holdfast-lab/servers'
import { expect, test } from 'vitest'
import { packedProject, runProgram } from '../lib/packed-project.ts'

const MAIN = 'node_modules/holdfast/dist/cli/main.js'

test('it works without any client on a file, and names the client that is missing', async () => {
  const { folder } = packedProject()
  const holdfast = (...args: string[]) =>
    runProgram(process.execPath, [join(folder, MAIN), ...args], { cwd: folder })
  const env = ['--url', 'sqlite:locks.db']
  expect(await holdfast('run', 'x', ...env, '--', 'sh', '-c', 'echo $HOLDFAST_NAME; exit 3')).toEqual({
    status: 3,
    stdout: 'x\n',
    stderr: '',
  })
  const missing = ['redis://127.0.0.1:1', 'postgres://127.0.0.1:1/x'].map((url) =>
    holdfast('ls', '--url', url),
  )
  const ends = await Promise.all(missing)
  expect(ends.map(({ status }) => status)).toEqual([64, 64])
  expect(ends[0]?.stderr).toMatch(/^holdfast: .*npm install ioredis[^\n]*\n$/)
  expect(ends[1]?.stderr).toMatch(/^holdfast: .*npm install pg[^\n]*\n$/)
  const croner = await holdfast('schedule', 'x', ...env, '--cron', '* * * * *', '--', 'true')
  expect([croner.status, croner.stderr]).toEqual([
    64,
    expect.stringMatching(/^holdfast: [^\n]*croner[^\n]*\n$/),
  ])
})

test.runIf(wanted('redis'))('with the client of an engine beside it, it works on that engine', async () => {
  await using server = await startRedis()
  const { folder } = packedProject({ packages: ['ioredis'] })
  const args = ['run', 'x', '--url', server.url, '--', 'sh', '-c', 'echo $HOLDFAST_NAME']
  const { status, stdout } = await runProgram(process.execPath, [join(folder, MAIN), ...args], {
    cwd: folder,
  })
  expect([status, stdout]).toEqual([0, 'x\n'])
})

const ROUNDS = 3
const RUNS = 6

test('its start costs at most three times an empty program, and a command under a lock six times', () => {
  const { folder } = packedProject()
  // Processor time with all children, not the clock's: other tests run meanwhile.
  const secondsOf = (...args: string[]) => {
    const quoted = [process.execPath, ...args].map((each) => `'${each}'`).join(' ')
    const loop = `i=0; while [ $i -lt ${RUNS} ]; do ${quoted} >/dev/null; i=$((i+1)); done; times`
    const { stdout } = spawnSync('sh', ['-c', loop], { cwd: folder, encoding: 'utf8' })
    const [, ofChildren = ''] = stdout.trim().split('\n')
    return [...ofChildren.matchAll(/(\d+)m([\d.]+)s/g)].reduce(
      (sum, [, m, s]) => sum + Number(m) * 60 + Number(s),
      0,
    )
  }
  const programs = {
    empty: ['-e', '0'],
    version: [MAIN, '--version'],
    run: [MAIN, 'run', 'x', '--url', 'sqlite:locks.db', '--', 'true'],
  }
  const costs = new Map<string, number[]>(Object.keys(programs).map((name) => [name, []]))
  for (let round = 0; round < ROUNDS; round++)
    for (const [name, args] of Object.entries(programs)) costs.get(name)?.push(secondsOf(...args))
  const median = (name: string) => costs.get(name)?.toSorted((a, b) => a - b)[ROUNDS >> 1] ?? Number.NaN
  const [empty, version, run] = [median('empty'), median('version'), median('run')]
  const figures = `${empty} s, ${version} s and ${run} s for ${RUNS} starts`
  expect(empty, figures).toBeGreaterThan(0)
  expect(version / empty, figures).toBeLessThanOrEqual(3)
  expect(run / empty, figures).toBeLessThanOrEqual(6)
})
