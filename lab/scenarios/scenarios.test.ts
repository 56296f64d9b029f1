import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { identify, isAlive, treeOf } from '../servers/processes.ts'
import { lostUpdateScenario } from './lost-update.ts'
import { pauseScenario } from './pause.ts'
import { describe as explain } from './report.ts'
import { conclude, type Result, runScenario, violationsOf } from './scenario.ts'

const onLinux = test.skipIf(process.platform !== 'linux')
const controlTries = 3

function expectPassed(result: Result): void {
  const { verdict, control, guarded } = result
  expect({ verdict, why: explain(result) }).toMatchObject({ verdict: 'passed' })
  expect(control.lost.length).toBeGreaterThan(0)
  expect(guarded.lost).toEqual([])
  expect(guarded.refusals.length).toBeGreaterThan(0)
  expect([...violationsOf(control), ...violationsOf(guarded)]).toEqual([])
  for (const { token, highest } of guarded.refusals) expect(token).toBeLessThan(highest)
}

onLinux(
  'pause: who was overtaken overwrites an update, unless a guard refuses it',
  { timeout: 120_000 },
  async () => {
    const result = await runScenario(pauseScenario({ ttlMs: 400 }), { controlTries })
    expectPassed(result)
    expect(result.control).toMatchObject({ lost: ['second 1'], found: ['first 1'] })
    expect(result.guarded).toMatchObject({
      found: ['second 1'],
      refusals: [{ client: 'first', access: 'write' }],
    })
  },
)

onLinux(
  'lost-update: five clients, one stopped at a time, lose updates without the guard and none with it',
  { timeout: 240_000 },
  async () => {
    const scaled = { seconds: 7, ttlMs: 400, mostThinkMs: 400, stopEveryMs: 1_000 }
    const result = await runScenario(lostUpdateScenario(scaled), { controlTries })
    expectPassed(result)
    const judged = ({ checks }: Result['guarded']) =>
      checks.checks.flatMap(({ check, status }) => (status === 'held' ? [check] : []))
    expect(judged(result.guarded)).toEqual(
      expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G13', 'lost-updates', 'linearizability']),
    )

    // The same rounds, had they gone otherwise.
    const { control, guarded } = result
    expect(conclude({ ...control, lost: [] }, guarded).verdict).toBe('void')
    expect(conclude(control, { ...guarded, refusals: [] }).verdict).toBe('void')
    expect(conclude(control, { ...guarded, lost: ['one'] }).verdict).toBe('failed')
    expect(conclude(control, { ...guarded, checks: undeclared(control) }).verdict).toBe('failed')
  },
)

/** What the checkers said, as if nobody had declared that updates may be lost. */
function undeclared({ checks }: Result['control']): Result['control']['checks'] {
  return { ...checks, checks: checks.checks.map((check) => ({ ...check, exception: null })) }
}

const run = (options: string[], environment: NodeJS.ProcessEnv = {}) =>
  promisify(execFile)(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, '../../scripts/lab.ts'), ...options],
    { env: { ...process.env, ...environment } },
  )

test('npm run lab explains itself, and refuses what it does not know', async () => {
  expect((await run(['--help'])).stdout).toContain('lost-update')
  await expect(run(['pause', 'abacus'])).rejects.toMatchObject({ code: 64 })
  await expect(run(['pause', 'sqlite', '--seconds', '30'])).rejects.toMatchObject({ code: 64 })
  await expect(run(['lost-update', 'sqlite', '--seconds', 'few'])).rejects.toMatchObject({ code: 64 })
})

onLinux('an interrupted run leaves neither files nor processes behind', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'lab-test-'))
  try {
    const left = () => readdirSync(folder).filter((name) => name.startsWith('holdfast-lab-'))
    const running = run(['pause', 'sqlite'], { TMPDIR: folder })
    const interrupted = expect(running).rejects.toMatchObject({ code: 130 })
    // The progress tells when a client has been stopped: a stopped one is the hardest to end.
    await new Promise((resolve) => running.child.stderr?.once('data', resolve))
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
