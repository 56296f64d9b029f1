// However a run ends, nothing of it stays: no process, no folder, no port. And nothing that is not its own is touched.

import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import { describe, onTestFinished, test } from 'vitest'
import { type Identity, identify, isAlive, treeOf } from './processes.ts'
import { base, currentRun, sweep } from './run.ts'
import { waitFor } from './wait.ts'
import { wanted } from './wanted.ts'

interface Harness {
  readonly process: ChildProcess
  readonly folder: string
  readonly watchdog: Identity
  readonly processes: readonly Identity[]
}

/** A harness in a process of its own, with these servers. */
async function startHarness(...names: readonly string[]): Promise<Harness> {
  const fixture = join(import.meta.dirname, 'fixtures/hold-servers.ts')
  const child = spawn(process.execPath, [fixture, ...names], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  const [line] = await once(child.stdout, 'data')
  const { folder, watchdogPid, pids } = JSON.parse(String(line))
  // Servers have children that come and go, and one that ended while its parent was paused is still listed.
  const found = (pids as number[]).flatMap(treeOf).map(identify)
  const processes = found.filter((identity) => identity !== null).filter(isAlive)
  assert.ok(processes.length >= names.length)
  return { process: child, folder, watchdog: known(watchdogPid), processes }
}

function known(pid: number): Identity {
  const identity = identify(pid)
  if (identity === null) throw new Error(`there is no process ${pid}`)
  return identity
}

async function untilNothingIsLeft({ processes, folder }: Harness): Promise<void> {
  await waitFor('the processes to end', async () => !processes.some(isAlive))
  await waitFor('the folder to vanish', async () => !existsSync(folder))
  assert.deepEqual(portsOf(folder), [])
}

function portsOf(folder: string): string[] {
  const ports = join(base, 'ports')
  return readdirSync(ports).filter((port) => {
    try {
      return basename(readlinkSync(join(ports, port))) === basename(folder)
    } catch {
      return false
    }
  })
}

/** The id of the segment that PostgreSQL notes in its folder. */
function sharedMemoryOf(folder: string): string {
  const [note] = globSync(join(folder, '*/data/postmaster.pid'))
  return (
    readFileSync(note ?? '', 'utf8')
      .split('\n')[6]
      ?.trim()
      .split(/\s+/)[1] ?? ''
  )
}

function sharedMemory(): string[] {
  const lines = readFileSync('/proc/sysvipc/shm', 'utf8').trim().split('\n').slice(1)
  return lines.map((line) => line.trim().split(/\s+/)[1] ?? '')
}

describe.runIf(wanted('redis'))('a run that is ended from outside', () => {
  for (const signal of ['SIGKILL', 'SIGINT', 'SIGTERM'] as const) {
    test(`leaves nothing behind after ${signal}`, async () => {
      const harness = await startHarness('redis-pair')
      assert.notEqual(portsOf(harness.folder).length, 0)
      harness.process.kill(signal)
      await untilNothingIsLeft(harness)
    })
  }

  test.runIf(wanted('postgres'))('takes a server of several processes along, even a paused one', async () => {
    const harness = await startHarness('postgres')
    assert.ok(harness.processes.length > 1)
    const segment = sharedMemoryOf(harness.folder)
    assert.ok(sharedMemory().includes(segment))
    harness.process.kill('SIGKILL')
    await untilNothingIsLeft(harness)
    assert.ok(!sharedMemory().includes(segment))
  })

  test('is cleaned up by the next one if its watchdog was killed too', async () => {
    const harness = await startHarness('redis')
    process.kill(harness.watchdog.pid, 'SIGKILL')
    harness.process.kill('SIGKILL')
    await waitFor(
      'both to end',
      async () => !isAlive(harness.watchdog) && harness.process.signalCode !== null,
    )
    assert.ok(harness.processes.every(isAlive))
    sweep()
    await untilNothingIsLeft(harness)
  })

  test('is not touched by others while it lives', async () => {
    const harness = await startHarness('redis')
    sweep()
    assert.ok(harness.processes.every(isAlive))
    assert.ok(existsSync(harness.folder))
    harness.process.kill('SIGKILL')
    await untilNothingIsLeft(harness)
  })
})

describe('sweeping', () => {
  function ownRecord(): object {
    return JSON.parse(readFileSync(join(currentRun().folder, 'owner.json'), 'utf8'))
  }

  /** Leaves a run behind whose owner is gone, with a record of this process. */
  function abandonedRun(recorded: Identity): string {
    const folder = join(base, `run-test-${process.pid}-${recorded.pid}`)
    const owner = { ...ownRecord(), started: '1' }
    mkdirSync(join(folder, 'processes'), { recursive: true })
    writeFileSync(join(folder, 'processes/1'), `${recorded.pid} ${recorded.started}\n`)
    symlinkSync(`../${basename(folder)}`, join(base, 'ports', `test-${recorded.pid}`))
    writeFileSync(join(folder, 'owner.json'), JSON.stringify(owner))
    return folder
  }

  test('ends what is provably left over, and spares a stranger with the same id', async () => {
    currentRun()
    const leftOver = spawn('sleep', ['600'])
    const stranger = spawn('sleep', ['600'])
    onTestFinished(() => {
      leftOver.kill('SIGKILL')
      stranger.kill('SIGKILL')
    })
    const left = known(leftOver.pid as number)
    const other = known(stranger.pid as number)
    const folders = [abandonedRun(left), abandonedRun({ ...other, started: '1' })]
    sweep()
    await waitFor('the left-over to end', async () => !isAlive(left))
    assert.ok(isAlive(other))
    for (const folder of folders) {
      assert.equal(existsSync(folder), false)
      assert.deepEqual(portsOf(folder), [])
    }
  })

  test('leaves alone what another container started', () => {
    currentRun()
    const foreign = join(base, `run-foreign-${process.pid}`)
    onTestFinished(() => rmSync(foreign, { recursive: true, force: true }))
    mkdirSync(foreign)
    const owner = { ...ownRecord(), started: '1', namespace: 'pid:[1]' }
    writeFileSync(join(foreign, 'owner.json'), JSON.stringify(owner))
    sweep()
    assert.ok(existsSync(foreign))
  })
})
