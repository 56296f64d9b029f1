/** The end of a command under a lease that ends before it, and what must not get in its way. */
import { spawnSync } from 'node:child_process'
import { chmodSync, closeSync, constants, copyFileSync, openSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { startProxy } from 'holdfast-lab/faults'
import { startRedis, waitFor, wanted } from 'holdfast-lab/servers'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import {
  FOREVER,
  gone,
  isRunning,
  LOUD,
  newFolder,
  newRig,
  run,
  shell,
  start,
  type Trace,
} from './command.ts'

let env: Record<string, string>
let trace: Trace
let locker: ReturnType<typeof newRig>['locker']
beforeEach(() => {
  ;({ env, trace, locker } = newRig())
})
const SHORT = ['--ttl', '600ms', '--stop-in', '200ms']
const forceRelease = async () => {
  const client = await locker()
  expect(await client.forceRelease('x', { all: true, reason: 'a test' })).toBe(1)
  return client
}

test('a command may take all of --max-hold but the time to stop it', async () => {
  const { code } = await run(['run', 'x', '--max-hold', '1500ms', ...shell('sleep 0.2; exit 4')], { env })
  expect(code).toBe(4)
})

test.runIf(wanted('redis'))(
  'where the engine knows short leases only, the time to stop is a third of one',
  async () => {
    await using server = await startRedis()
    const url = `redlock://127.0.0.1:${server.port}?allowFewNodes=true&maxTtlMs=900`
    // A server that has just started has no vote for as long.
    const flags = ['--wait', 'forever', '--url', url, ...shell('sleep 1.2; exit 4')]
    expect(await run(['run', 'x', ...flags], { env })).toEqual({ code: 4, stdout: '', stderr: '' })
  },
)

test.runIf(wanted('redis'))(
  'T57 an engine that comes back after SIGTERM does not keep the name for what ignores it',
  async () => {
    await using server = await startRedis()
    await using proxy = await startProxy({ host: '127.0.0.1', port: server.port })
    const grandchild = `sh -c 'trap "" TERM; echo "grandchild $$" >>"$TRACE"; ${FOREVER}' &`
    const script = `${grandchild} trap 'echo term >>"$TRACE"; exit 0' TERM; ${LOUD}; ${FOREVER}`
    const flags = ['--url', `redis://127.0.0.1:${proxy.port}`, '--ttl', '2400ms', '--stop-in', '800ms']
    const running = start(['run', 'x', ...flags, ...shell(script)], { env })
    const pids = [await trace.pid('pid'), await trace.pid('grandchild')]
    proxy.blackhole()
    await trace.has('term')
    proxy.heal()
    expect((await running.ended).code).toBe(79)
    expect(pids.map(isRunning)).toEqual([false, false])
    expect(await (await locker(server.url)).inspect('x')).toBeNull()
  },
)

test('a reader of stderr that has gone ends neither the command nor its stopping', async () => {
  // The shell itself tells of children that a signal ended.
  const script = `exec 2>/dev/null; trap 'echo term >>"$TRACE"; exit 0' TERM; ${LOUD}; ${FOREVER}`
  const running = start(['run', 'x', '--ttl', '600ms', '--max-hold', '1200ms', ...shell(script)], { env })
  await trace.pid('pid')
  running.process.stderr?.destroy()
  expect((await running.ended).code).toBe(79)
  expect(trace.lines).toContain('term')
  expect(await (await locker()).inspect('x')).toBeNull()
})

// A write to a pipe that is full waits, and must not fail because holdfast has written meanwhile.
const WAITS = `exec 3>&2 2>/dev/null; head -c 65536 /dev/zero >&3; trap 'echo term >>"$TRACE"; echo more >&3; echo "written, $?" >>"$TRACE"' TERM; ${LOUD}; ${FOREVER}`
// Node does not let writes wait, also those of others.
const FAILS = `require('fs').appendFileSync(process.env.TRACE, 'pid ' + process.pid + '\\n'); process.stderr.write('x'.repeat(100_000))
  process.on('SIGTERM', () => require('fs').appendFileSync(process.env.TRACE, 'term\\n')); setInterval(() => {}, 1_000)`

test.each([
  ['waits for it', shell(WAITS)],
  ['does not wait', ['--', process.execPath, '-e', FAILS]],
])('T57 a reader of stderr that stalls does not hold up SIGKILL: a command that %s', async (_, command) => {
  const fifo = join(newFolder(), 'stderr')
  spawnSync('mkfifo', [fifo])
  const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK)
  onTestFinished(() => closeSync(reader))
  const through = ['sh', '-c', `exec "$0" "$@" 2>'${fifo}'`]
  const flags = ['--ttl', '1500ms', '--stop-in', '500ms']
  const running = start(['run', 'x', ...flags, ...command], { env, through })
  const pid = await trace.pid('pid')
  await forceRelease()
  await gone(pid)
  expect(trace.lines).toEqual([`pid ${pid}`, 'term'])
  // Then it ends as soon as its own message is read.
  const told = Buffer.alloc(200_000)
  let length = 0
  await waitFor('the message', async () => {
    try {
      length += readSync(reader, told, length, told.length - length, null)
    } catch {
      // Nothing yet.
    }
    return /the command is stopped\.\n$/.test(told.toString('latin1', 0, length)) || null
  })
  expect((await running.ended).code).toBe(79)
})

test('a command with other rights is told of, and waited for', async () => {
  const folder = newFolder()
  for (const path of [
    folder,
    join(trace.path, '..'),
    join(env.HOLDFAST_URL?.slice('sqlite:'.length) ?? '', '..'),
  ])
    chmodSync(path, 0o777)
  const asRoot = join(folder, 'as-root')
  copyFileSync(spawnSync('sh', ['-c', 'command -v setpriv'], { encoding: 'utf8' }).stdout.trim(), asRoot)
  chmodSync(asRoot, 0o4755)
  const command = ['--', asRoot, '--reuid=0', '--regid=0', '--clear-groups', 'sh', '-c', `${LOUD}; sleep 600`]
  const through = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']
  const running = start(['run', 'x', ...SHORT, ...command], { env, through })
  const pid = await trace.pid('pid')
  let told = ''
  running.process.stderr?.on('data', (text: string) => (told += text))
  await forceRelease()
  await waitFor('both signals', async () => /SIGTERM cannot[\s\S]*SIGKILL cannot/.test(told) || null)
  expect(isRunning(pid)).toBe(true)
  process.kill(-pid, 'SIGKILL')
  expect((await running.ended).code).toBe(79)
})
