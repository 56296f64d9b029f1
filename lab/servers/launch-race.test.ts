// The harness is killed while it launches a server: the reaper and the launcher are at work at the same time. Whoever
// comes second must see the other, or a server stays for ever. Records that are pipes let a test stop both in the middle.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readlinkSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished, test } from 'vitest'
import { waitFor } from './wait.ts'

/** The folder of a run, and a program that leaves a mark when it is started. */
function createRun() {
  const base = mkdtempSync(join(tmpdir(), 'holdfast-launch-race-'))
  onTestFinished(() => rmSync(base, { recursive: true, force: true }))
  mkdirSync(join(base, 'run/processes'), { recursive: true })
  mkdirSync(join(base, 'ports'))
  const run = join(base, 'run')
  const mark = join(base, 'it-runs')
  const start = (script: string, ...given: string[]) => {
    const child = spawn('sh', [join(import.meta.dirname, script), ...given], { stdio: 'ignore' })
    onTestFinished(() => void child.kill('SIGKILL'))
    return { pid: child.pid, exitCode: once(child, 'exit').then(([code]) => code as number | null) }
  }
  return {
    run,
    record: join(run, 'processes/1'),
    launch: () => start('launch.sh', join(run, 'processes/1'), 'touch', mark),
    reap: () => start('reaper.sh', run),
    runs: () => existsSync(mark),
  }
}

test('a server that was written down starts', async () => {
  const { record, launch, runs } = createRun()
  writeFileSync(record, '')
  assert.equal(await launch().exitCode, 0)
  assert.ok(runs())
})

test('a server that comes after the reaper does not start', async () => {
  const { run, launch, reap, runs } = createRun()
  await reap().exitCode
  assert.ok(!existsSync(run))
  assert.notEqual(await launch().exitCode, 0)
  assert.ok(!runs())
})

test('a server whose record the reaper took away while it was written does not start', async () => {
  const { run, record, launch, runs } = createRun()
  execFileSync('mkfifo', [record])
  const pipe = openSync(record, constants.O_RDWR | constants.O_NONBLOCK)
  const filled = fill(pipe)
  const launched = launch()
  await waitFor('the launcher to write', async () => readlinkSync(`/proc/${launched.pid}/fd/1`) === record)
  // The reaper’s first step.
  renameSync(join(run, 'processes'), join(run, 'reaped'))
  readSync(pipe, Buffer.alloc(filled))
  assert.notEqual(await launched.exitCode, 0)
  assert.ok(!runs())
  closeSync(pipe)
})

/** Until nothing more goes in: whoever writes to it next stands still. */
function fill(pipe: number): number {
  for (let bytes = 0; ; bytes += 4096) {
    try {
      writeSync(pipe, Buffer.alloc(4096))
    } catch {
      return bytes
    }
  }
}

test('the reaper takes the records away before it reads the first', async () => {
  const { run, record, reap } = createRun()
  execFileSync('mkfifo', [record])
  const reaped = reap()
  // It stands still at the record, into which nobody has written yet.
  await waitFor('the records to be taken away', async () => !existsSync(join(run, 'processes')))
  writeFileSync(join(run, 'reaped/1'), '0 0\n')
  await reaped.exitCode
  assert.ok(!existsSync(run))
})
