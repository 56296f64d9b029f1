/** `holdfast run`, with real processes and signals. */
import { openLocker, parseFence } from 'holdfast'
import { startProxy } from 'holdfast-lab/faults'
import { startEtcd, startPostgres, startRedis, waitFor, wanted } from 'holdfast-lab/servers'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  childrenOf,
  gone,
  holdfast,
  isRunning,
  LOUD,
  newFolder,
  newKey,
  newRig,
  onTerminal,
  PASSED,
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

describe('a command that runs to its end', () => {
  test('its exit code is ours, and the name is free afterwards', async () => {
    expect(await run(['run', 'x', ...shell('echo out; echo err >&2; exit 3')], { env })).toEqual({
      code: 3,
      stdout: 'out\n',
      stderr: 'err\n',
    })
    expect(await (await locker()).inspect('x')).toBeNull()
  })

  test('T57 exit codes: a signal is 128 + n, what cannot be run is 126, what is not there is 127', async () => {
    const codes = [
      shell('kill -TERM $$'),
      shell('kill -KILL $$'),
      ['--', newFolder()],
      ['--', '/no/such/program'],
      ['--', 'true'],
      // Node throws these at once.
      ['--', ''],
      ['--', '/etc/hostname/x'],
      ['--', 'x'.repeat(300)],
    ].map(async (command, index) => {
      const { code, stderr } = await run(['run', `x${index}`, ...command], { env })
      expect(stderr).toMatch(/^(|holdfast: "[^\n]*" (was not found|cannot be run: [^\n]+)\.\n)$/)
      return code
    })
    expect(await Promise.all(codes)).toEqual([143, 137, 126, 127, 0, 127, 126, 126])
    expect(await (await locker()).list()).toEqual([])
  })

  test('its environment has the name, the token and the fence, and not the API token', async () => {
    const printed = shell(
      'echo "$HOLDFAST_NAME|$HOLDFAST_FENCING_TOKEN|$HOLDFAST_FENCE|$HOLDFAST_API_TOKEN|$HOLDFAST_TICK"',
    )
    const given = { ...env, HOLDFAST_API_TOKEN: 'secret', HOLDFAST_TICK: 'of an outer one' }
    const { stdout } = await run(['run', 'a/b', ...printed], { env: given })
    const [name, token, text = '', apiToken, tick] = stdout.trim().split('|')
    const fence = parseFence(text)
    expect([name, token, apiToken, tick]).toEqual(['a/b', String(fence.token), '', ''])
    expect(fence.name).toBe('a/b')
    const passed = await run(['run', 'a/b', '--pass-api-token', ...printed], { env: given })
    expect(passed.stdout).toContain('|secret|')
  })

  test('with a key the fence is signed', async () => {
    const { file, key } = newKey()
    const { stdout } = await run(['run', 'x', '--sign-key-file', file, ...shell('echo "$HOLDFAST_FENCE"')], {
      env,
    })
    expect(parseFence(stdout.trim(), { keys: [key] }).name).toBe('x')
  })
})

describe('a name that is taken', () => {
  test('the code is 75, or that of -E, with one sentence', async () => {
    const held = await (await locker()).acquire('x')
    const once = await run(['run', 'x', '--wait', '0', '--', 'true'], { env })
    expect(once).toEqual({ code: 75, stdout: '', stderr: 'holdfast: "x" is taken.\n' })
    const waited = await run(['run', 'x', '--wait', '100ms', '-E', '9', '--', 'true'], { env })
    expect([waited.code, waited.stderr.split('\n').length]).toEqual([9, 2])
    expect((await run(['run', 'x', '--wait', '0', '-E', '9', '--', 'true'], { env })).code).toBe(9)
    expect((await run(['run', 'y', '-E', '9', ...shell('exit 75')], { env })).code).toBe(75)
    await held.release()
  })

  test('readers share it, and a semaphore counts its permits', async () => {
    const client = await locker()
    const reader = await client.acquire('r', { mode: 'shared' })
    expect((await run(['run', 'r', '--shared', '--wait', '0', '--', 'true'], { env })).code).toBe(0)
    expect((await run(['run', 'r', '--wait', '0', '--', 'true'], { env })).code).toBe(75)
    await reader.release()
    const permit = await client.acquirePermits('s', { capacity: 3, weight: 2 })
    const permits = ['run', 's', '--wait', '0', '--capacity', '3']
    expect((await run([...permits, '--', 'true'], { env })).code).toBe(0)
    expect((await run([...permits, '--weight', '2', '--', 'true'], { env })).code).toBe(75)
    await permit.release()
  })

  test('twenty that start together run the job once: by hand, from a crontab, and as the first process of a container', async () => {
    const args = ['run', 'x', '--wait', '0', '--hold-at-least', '30s', ...shell('echo ran >>"$TRACE"')]
    const places = [
      [],
      [
        'env',
        '-i',
        'PATH=/usr/bin:/bin',
        ...Object.entries(env).map(([name, value]) => `${name}=${value}`),
        'setsid',
      ],
      ['unshare', '-pf', '--mount-proc', '--kill-child'],
    ]
    const one = (index: number) => run(args, { env, through: places[index % places.length] ?? [] })
    const codes = (await Promise.all(Array.from({ length: 20 }, (_, index) => one(index)))).map(
      ({ code }) => code,
    )
    expect(trace.lines).toEqual(['ran'])
    expect(codes.toSorted((a, b) => Number(a) - Number(b))).toEqual([0, ...Array(19).fill(75)])
  })
})

describe('signals', () => {
  test.each(['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const)(
    'T57 %s before the grant ends the wait at once, and nothing stays queued',
    async (signal) => {
      const client = await locker()
      const held = await client.acquire('x')
      const waiting = start(['run', 'x', '--wait', 'forever', ...shell(LOUD)], { env })
      const waiters = async () => (await client.inspect('x'))?.waiters.length
      await waitFor('it waits', async () => (await waiters()) === 1 || null)
      waiting.kill(signal)
      const { code, stderr } = await waiting.ended
      expect([code, stderr]).toEqual([128 + (await numberOf(signal)), ''])
      expect(await waiters()).toBe(0)
      await held.release()
      expect(trace.lines).toEqual([])
      expect(await client.inspect('x')).toBeNull()
    },
  )

  test.runIf(wanted('redis'))(
    'a signal also ends the opening of an engine that does not answer',
    async () => {
      await using server = await startRedis()
      await using proxy = await startProxy({ host: '127.0.0.1', port: server.port })
      proxy.blackhole()
      const url = `redis://127.0.0.1:${proxy.port}`
      const opening = [
        ['run', 'x', '--url', url, '--', 'true'],
        ['doctor', url],
      ].map((args) => start(args))
      await waitFor('both connect', async () => proxy.connections === 2 || null)
      for (const each of opening) each.kill('SIGTERM')
      for (const { ended } of opening) expect(await ended).toEqual({ code: 143, stdout: '', stderr: '' })
    },
  )

  test.runIf(wanted('redis'))(
    'T57 a signal that comes twice, as Ctrl-C does through npx, leaves nothing queued',
    async () => {
      await using server = await startRedis()
      await using proxy = await startProxy({ host: '127.0.0.1', port: server.port })
      await using client = await openLocker(server.url)
      await client.acquire('x')
      const url = `redis://127.0.0.1:${proxy.port}`
      const waiting = start(['run', 'x', '--url', url, '--', 'true'], { env })
      const waiters = async () => (await client.inspect('x'))?.waiters.length
      await waitFor('it waits', async () => (await waiters()) === 1 || null)
      proxy.delay(200)
      for (const signal of ['SIGINT', 'SIGINT'] as const) {
        waiting.kill(signal)
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
      expect((await waiting.ended).code).toBe(130)
      expect(await waiters()).toBe(0)
    },
  )

  test.each(['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const)(
    'T57 %s after the grant reaches the command, whose code counts',
    async (signal) => {
      const script = `trap 'echo got; exit 7' ${signal.slice(3)}; ${LOUD}; while :; do sleep 0.02; done`
      const running = start(['run', 'x', ...shell(script)], { env })
      await trace.pid('pid')
      running.kill(signal)
      expect(await running.ended).toMatchObject({ code: 7, stdout: 'got\n' })
      expect(await (await locker()).inspect('x')).toBeNull()
    },
  )

  test('T57 a signal reaches a grandchild', async () => {
    const script = `sh -c 'trap "echo grandchild; exit" TERM; ${LOUD}; while :; do sleep 0.02; done'; exit 5`
    const running = start(['run', 'x', ...shell(`trap : TERM; ${script}`)], { env })
    await trace.pid('pid')
    running.kill('SIGTERM')
    expect(await running.ended).toMatchObject({ code: 5, stdout: 'grandchild\n' })
  })

  test('T57 SIGKILL of holdfast ends the command and its children', async () => {
    const grandchild = `trap '' USR1; sh -c 'echo "grandchild $$" >>"$TRACE"; sleep 600' &`
    const running = start(['run', 'x', ...shell(`${grandchild} ${PASSED}`)], { env })
    const pids = [await trace.pid('pid'), await trace.pid('grandchild')]
    running.kill('SIGUSR1')
    await trace.has('passed')
    expect(pids.map(isRunning)).toEqual([true, true])
    running.kill('SIGKILL')
    for (const pid of pids) await gone(pid)
  })

  test('T57 so does SIGKILL of the whole group of holdfast', async () => {
    const running = start(['run', 'x', ...shell(PASSED)], { env, through: ['setsid'] })
    const pid = await trace.pid('pid')
    running.kill('SIGUSR1')
    await trace.has('passed')
    process.kill(-(running.process.pid ?? 0), 'SIGKILL')
    await gone(pid)
  })

  test('what a command leaves in the background goes on after a normal end', async () => {
    const script = `sh -c 'echo "left $$" >>"$TRACE"; exec sleep 600' >/dev/null 2>&1 & echo done`
    expect((await run(['run', 'x', ...shell(script)], { env })).code).toBe(0)
    const pid = await trace.pid('left')
    expect(isRunning(pid)).toBe(true)
    process.kill(pid, 'SIGKILL')
  })
})

describe('a lease that is lost', () => {
  test('T57 a force release stops the command, also one that ignores SIGTERM, with its children', async () => {
    const client = await locker()
    const script = `trap '' TERM; sh -c 'echo "grandchild $$" >>"$TRACE"; while :; do sleep 0.02; done' & ${LOUD}; while :; do sleep 0.02; done`
    const running = start(['run', 'x', '--ttl', '600ms', '--stop-in', '200ms', ...shell(script)], { env })
    const pids = [await trace.pid('pid'), await trace.pid('grandchild')]
    const [holder] = (await client.inspect('x'))?.holders ?? []
    expect(await client.forceRelease('x', { id: holder?.id ?? '', reason: 'host is gone' })).toBe(1)
    const { code, stderr } = await running.ended
    expect(code).toBe(79)
    expect(stderr).toMatch(/^holdfast: .*host is gone.*[^.]; the command is stopped\.\n$/)
    for (const pid of pids) await gone(pid)
  })

  test('T57 --max-hold stops the command in time', async () => {
    const script = `trap 'echo stopped; exit 0' TERM; ${LOUD}; while :; do sleep 0.02; done`
    const flags = ['--max-hold', '2s', '--stop-in', '600ms']
    const { code, stdout } = await run(['run', 'x', ...flags, ...shell(script)], { env })
    expect([code, stdout]).toEqual([79, 'stopped\n'])
  })

  test.runIf(wanted('redis'))(
    'T57 G3 while the engine is away, a command that ignores SIGTERM is dead before the next grant',
    async () => {
      await using server = await startRedis()
      await using proxy = await startProxy({ host: '127.0.0.1', port: server.port })
      const script = `trap 'echo term >>"$TRACE"' TERM; while :; do echo "beat $(date +%s%N)" >>"$TRACE"; sleep 0.01; done`
      const flags = ['--url', `redis://127.0.0.1:${proxy.port}`, '--ttl', '3s', '--stop-in', '800ms']
      const running = start(['run', 'x', ...flags, ...shell(script)], { env })
      await waitFor('it runs', async () => trace.lines.length > 0 || null)
      const next = await locker(server.url)
      proxy.blackhole()
      const lease = await next.acquire('x', { waitMs: 60_000 })
      // By the record of the engine: its own time, less the time for which it has been held.
      const state = await next.inspect('x')
      const [holder] = state?.holders ?? []
      expect(holder?.id).toBe(lease.id)
      const grantedMs = (state?.atMs ?? 0) - (holder?.heldForMs ?? 0)
      expect((await running.ended).code).toBe(79)
      const beats = trace.lines
        .filter((line) => line.startsWith('beat '))
        .map((line) => Number(line.slice(5)) / 1e6)
      expect(trace.lines).toContain('term')
      expect(Math.max(...beats)).toBeLessThan(grantedMs)
    },
  )

  test('T57 a grandchild that outlives the command is ended with it', async () => {
    const grandchild = `sh -c 'trap "" TERM; echo "grandchild $$" >>"$TRACE"; while :; do sleep 0.02; done' &`
    const script = `${grandchild} trap 'exit 0' TERM; ${LOUD}; while :; do sleep 0.02; done`
    const running = start(['run', 'x', '--ttl', '600ms', '--stop-in', '200ms', ...shell(script)], { env })
    const pid = await trace.pid('grandchild')
    await trace.pid('pid')
    await (await locker()).forceRelease('x', { all: true, reason: 'a test' })
    expect((await running.ended).code).toBe(79)
    await gone(pid)
  })

  test('a holdfast that was stopped for longer than the TTL kills the command at once when it goes on', async () => {
    const script = `trap 'sleep 0.1; echo late >>"$TRACE"' TERM; ${LOUD}; while :; do sleep 0.02; done`
    const flags = ['--ttl', '3s', '--stop-in', '1s']
    const running = start(['run', 'x', ...flags, ...shell(script)], { env })
    const pid = await trace.pid('pid')
    running.kill('SIGSTOP')
    const lease = await (await locker()).acquire('x')
    expect(isRunning(pid)).toBe(true)
    running.kill('SIGCONT')
    expect((await running.ended).code).toBe(79)
    await gone(pid)
    expect(trace.lines).not.toContain('late')
    await lease.release()
  })
})

describe('places to run in', () => {
  test('a crontab’s environment: no terminal, and nearly no variables', async () => {
    const through = ['env', '-i', `HOME=${newFolder()}`, 'PATH=/usr/bin:/bin', 'setsid', '--wait']
    const { code, stdout, stderr } = await run(['run', 'x', '--wait', '0', ...shell('echo $HOLDFAST_NAME')], {
      through,
    })
    expect([code, stdout]).toEqual([0, 'x\n'])
    expect(stderr).toMatch(/^holdfast: no --url .* this user on this machine only\.\n$/)
  })

  test('as the first process of a container', async () => {
    const through = ['unshare', '-pf', '--mount-proc', '--kill-child']
    const script = `echo "I am $PPID's"; trap 'exit 4' TERM; ${LOUD}; while :; do sleep 0.02; done`
    const running = start(['run', 'x', ...shell(script)], { env, through })
    await trace.pid('pid')
    const [first] = childrenOf(running.process.pid ?? 0)
    process.kill(first ?? 0, 'SIGTERM')
    expect(await running.ended).toMatchObject({ code: 4, stdout: "I am 1's\n" })
  })

  test('on a terminal Ctrl-C reaches the command once, and stdin is its own', async () => {
    const loop = 'while :; do sleep 0.02; done'
    const script = `trap 'echo interrupted >>"$TRACE"' INT; trap 'exit 6' TERM; echo "parent $PPID" >>"$TRACE"; read -r line; echo "read $line"; ${LOUD}; ${loop}`
    const command = `exec ${holdfast} run x -- sh -c '${script.replaceAll("'", `'"'"'`)}'`
    const running = start([], { env, through: onTerminal(command), input: true })
    running.process.stdin?.write('hello\n')
    await trace.pid('pid')
    running.process.stdin?.write('\u0003')
    await trace.has('interrupted')
    // A second one, by us, would have come by the time that SIGTERM has.
    process.kill(await trace.pid('parent'), 'SIGTERM')
    const { code, stdout } = await running.ended
    expect([code, trace.lines.filter((line) => line === 'interrupted')]).toEqual([6, ['interrupted']])
    expect(stdout).toContain('read hello')
  })

  test('on a terminal Ctrl-Z stops holdfast and the command, and fg lets both go on', async () => {
    const script = `${LOUD}; read -r line; echo "read $line" >>"$TRACE"; exit 6`
    const job = `${holdfast} run x -- sh -c '${script.replaceAll("'", `'"'"'`)}'`
    const command = `exec bash -mc "$JOBS"`
    const jobs = `${job}; echo "stopped $?" >>"$TRACE"; fg; exit $?`
    const shelled = start([], { env: { ...env, JOBS: jobs }, through: onTerminal(command), input: true })
    await trace.pid('pid')
    shelled.process.stdin?.write('\u001a')
    // 128 + SIGTSTP
    await trace.has('stopped 148')
    shelled.process.stdin?.write('hello\n')
    expect((await shelled.ended).code).toBe(6)
    expect(trace.lines).toContain('read hello')
  })

  test('on a terminal SIGKILL of holdfast ends the command', async () => {
    const script = `echo "parent $PPID" >>"$TRACE"; ${PASSED}`
    const command = `${holdfast} run x -- sh -c '${script.replaceAll("'", `'"'"'`)}'`
    start([], { env, through: onTerminal(command), input: true })
    const [parent, pid] = [await trace.pid('parent'), await trace.pid('pid')]
    process.kill(parent, 'SIGUSR1')
    await trace.has('passed')
    process.kill(parent, 'SIGKILL')
    await gone(pid)
  })
})

describe('engines', () => {
  const printed = shell('echo "$HOLDFAST_NAME|$HOLDFAST_FENCING_TOKEN"')
  const ran = async (url: string) =>
    (await run(['run', 'x', '--url', url, ...printed], { env })).stdout.trim()

  test.runIf(wanted('redis'))('redis: without tokens unless they are asked for', async () => {
    await using server = await startRedis()
    const outer = { ...env, HOLDFAST_FENCING_TOKEN: '9', HOLDFAST_FENCE: 'of an outer one' }
    const all = shell('echo "$HOLDFAST_NAME|$HOLDFAST_FENCING_TOKEN|$HOLDFAST_FENCE"')
    const { stdout } = await run(['run', 'x', '--url', server.url, ...all], { env: outer })
    expect(stdout).toBe('x||\n')
    expect(await ran(`${server.url}?fencing=clock-backed`)).toMatch(/^x\|\d+$/)
    const refused = async (...flags: readonly string[]) => {
      const { code, stderr } = await run(['run', 'x', ...flags, '--', 'true'], { env })
      return [code, stderr]
    }
    const told = (text: RegExp) => [
      64,
      expect.stringMatching(new RegExp(`^holdfast: .*${text.source}.*\\n$`)),
    ]
    const { file: key } = newKey()
    expect(
      await Promise.all([
        refused('--url', server.url, '--require', 'fenced'),
        refused('--url', server.url, '--sign-key-file', key),
        refused('--sign-key-file', key, '--capacity', '2'),
        refused('--require', 'cluster'),
        refused('--url', `${server.url}?fencing=clock-backed`, '--require', 'cluster', '--require', 'fenced'),
      ]),
    ).toEqual([
      told(/clock-backed/),
      told(/--sign-key-file/),
      told(/--sign-key-file/),
      told(/within one machine/),
      // And it tells that this server forgets.
      [0, expect.stringContaining('appendonly')],
    ])
  })

  test.runIf(wanted('postgres'))('postgres', async () => {
    await using server = await startPostgres()
    expect(await ran(server.url)).toMatch(/^x\|\d+$/)
  })

  test.runIf(wanted('etcd'))('etcd', async () => {
    await using cluster = await startEtcd()
    const [member] = cluster.members
    expect(await ran(`etcd://127.0.0.1:${member?.port}`)).toMatch(/^x\|\d+$/)
  })
})

async function numberOf(signal: NodeJS.Signals): Promise<number> {
  return (await import('node:os')).constants.signals[signal]
}
