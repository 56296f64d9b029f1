/** `elect`, `leader` and `schedule`, with real processes. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type AnyLocker, openLocker, parseFence } from 'holdfast'
import { startProxy } from 'holdfast-lab/faults'
import { redisCall, startRedis, waitFor, wanted } from 'holdfast-lab/servers'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  childrenOf,
  FOREVER,
  holdfast,
  newFolder,
  newKey,
  newRig,
  onTerminal,
  run,
  shell,
  start,
  type Trace,
} from './command.ts'

let env: Record<string, string>
let locker: AnyLocker
let trace: Trace
beforeEach(async () => {
  const rig = newRig()
  ;({ env, trace } = rig)
  locker = await rig.locker()
})

const onTty = () => run([], { env, through: onTerminal(`exec ${holdfast} leader x`) })

test('with a key the fences of an election and of a schedule are signed', async () => {
  const { file, key } = newKey()
  const flags = ['--sign-key-file', file, ...shell('echo "$HOLDFAST_FENCE" >>"$TRACE"')]
  await run(['elect', 'x', ...flags], { env })
  const ticking = start(['schedule', 'y', '--cron', '* * * * * *', ...flags], { env })
  const [ofElect = '', ofTick = ''] = await waitFor('both', async () =>
    trace.lines.length > 1 ? trace.lines : null,
  )
  ticking.kill('SIGTERM')
  expect([ofElect, ofTick].map((text) => parseFence(text, { keys: [key] }).name)).toEqual(['x', 'y'])
})

describe('an election', () => {
  test('the command runs on one; the next one leads when it has ended; leader shows who, with the value', async () => {
    const work = (label: string) =>
      `trap 'echo "end ${label}" >>"$TRACE"; exit 5' TERM; echo "begin ${label}" >>"$TRACE"; ${FOREVER}`
    const first = start(['elect', 'x', '--value', 'a:1', ...shell(work('a'))], { env })
    await trace.has('begin a')
    const second = start(['elect', 'x', '--value', 'b:1', ...shell(work('b'))], { env })
    const waiters = async () => (await locker.inspect('x'))?.waiters.length
    await waitFor('the second campaigns', async () => (await waiters()) === 1 || null)
    const { stdout } = await run(['leader', 'x'], { env })
    expect(JSON.parse(stdout)).toMatchObject({ value: 'a:1', token: expect.any(String) })
    expect((await onTty()).stdout).toMatch(/^holder {2}\S.*\r?\ntoken {3}1\r?\nvalue {3}a:1\r?\n$/)
    first.kill('SIGTERM')
    expect((await first.ended).code).toBe(5)
    await trace.has('begin b')
    expect(trace.lines).toEqual(['begin a', 'end a', 'begin b'])
    second.kill('SIGTERM')
    await second.ended
    expect(await run(['leader', 'x'], { env })).toMatchObject({ code: 1, stdout: 'null\n' })
    expect(await onTty()).toMatchObject({ code: 1, stdout: expect.stringMatching(/^Nobody leads\.\r?\n$/) })
  })

  test('T53 a command whose lease is lost is stopped first, and then there is another campaign', async () => {
    const script = `trap 'exit 0' TERM; echo "term $HOLDFAST_FENCING_TOKEN" >>"$TRACE"; ${FOREVER}`
    const flags = ['--ttl', '900ms', '--stop-in', '300ms']
    const leading = start(['elect', 'x', ...flags, ...shell(script)], { env })
    await trace.has('term 1')
    await locker.forceRelease('x', { all: true, reason: 'a test' })
    await waitFor('another term', async () => trace.lines.length === 2 || null)
    leading.kill('SIGTERM')
    expect((await leading.ended).code).toBe(0)
  })

  test('a signal that comes while a lost term is wound down ends the election', async () => {
    const script = `trap 'echo term >>"$TRACE"' TERM; echo begin >>"$TRACE"; ${FOREVER}`
    const leading = start(['elect', 'x', '--ttl', '3s', '--stop-in', '1s', ...shell(script)], { env })
    await trace.has('begin')
    await locker.forceRelease('x', { all: true, reason: 'a test' })
    await trace.has('term')
    leading.kill('SIGTERM')
    expect((await leading.ended).code).toBe(143)
    expect(trace.lines.filter((line) => line === 'begin')).toHaveLength(1)
  })

  test.runIf(wanted('redis'))(
    'an engine that does not take the value ends the term, and not the election',
    async () => {
      await using server = await startRedis()
      await using proxy = await startProxy({ host: '127.0.0.1', port: server.port })
      await using client = await openLocker(server.url)
      const held = await client.acquire('x')
      const script = `trap 'exit 0' TERM; echo begin >>"$TRACE"; ${FOREVER}`
      const url = ['--url', `redis://127.0.0.1:${proxy.port}`]
      const flags = [...url, '--allow-unfenced', '--value', 'a:1']
      expect(await run(['elect', 'x', ...url, '--', 'true'])).toMatchObject({
        code: 64,
        stderr: expect.stringMatching(/^holdfast: An election cannot run on redis.*allowUnfenced/),
      })
      const leading = start(['elect', 'x', ...flags, ...shell(script)], { env })
      const state = async () => await client.inspect('x')
      await waitFor('it campaigns', async () => (await state())?.waiters.length === 1 || null)
      let told = ''
      leading.process.stderr?.on('data', (text: string) => (told += text))
      proxy.hold('down')
      await held.release()
      await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '1')
      proxy.heal()
      await waitFor('the failure', async () => /^holdfast: .*OOM/.test(told) || null)
      await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '0')
      await trace.has('begin')
      expect(JSON.parse((await run(['leader', 'x', '--url', server.url])).stdout)).toMatchObject({
        value: 'a:1',
      })
      leading.kill('SIGTERM')
      expect((await leading.ended).code).toBe(0)
      expect(trace.lines).toEqual(['begin'])
    },
  )

  test('a signal during the campaign ends it, and nothing stays queued', async () => {
    const held = await locker.acquire('x')
    const campaigning = start(['elect', 'x', '--', 'true'], { env })
    const waiters = async () => (await locker.inspect('x'))?.waiters.length
    await waitFor('it campaigns', async () => (await waiters()) === 1 || null)
    campaigning.kill('SIGTERM')
    expect((await campaigning.ended).code).toBe(143)
    expect(await waiters()).toBe(0)
    await held.release()
  })
})

describe('a schedule', () => {
  test('each tick runs on one of two, with its time, until a signal comes', async () => {
    const flags = [
      'schedule',
      'x',
      '--cron',
      '* * * * * *',
      '--tz',
      'UTC',
      ...shell('echo "$HOLDFAST_TICK" >>"$TRACE"'),
    ]
    const both = [start(flags, { env }), start(flags, { env })]
    await waitFor('two ticks', async () => trace.lines.length >= 2 || null)
    for (const one of both) one.kill('SIGTERM')
    expect((await Promise.all(both.map(({ ended }) => ended))).map(({ code }) => code)).toEqual([143, 143])
    expect(new Set(trace.lines).size).toBe(trace.lines.length)
    expect(trace.lines[0]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z$/)
  })

  test('a signal that comes while it starts is not missed', async () => {
    const hook = join(newFolder(), 'hook.mjs')
    // Croner takes a moment, in which the signal comes.
    const slow = `process.kill(process.pid, 'SIGTERM'); await new Promise((r) => setTimeout(r, 100)); export * from `
    writeFileSync(
      hook,
      `import { registerHooks } from 'node:module'
      registerHooks({ load: (url, context, next) => /croner[^?]*$/.test(url)
        ? { format: 'module', shortCircuit: true, source: ${JSON.stringify(slow)} + JSON.stringify(url + '?real') }
        : next(url, context) })`,
    )
    const flags = ['--cron', '* * * * * *', ...shell('echo ran >>"$TRACE"')]
    const NODE_OPTIONS = `--import=${hook}`
    expect((await run(['schedule', 'x', ...flags], { env: { ...env, NODE_OPTIONS } })).code).toBe(143)
    expect(trace.lines).toEqual([])
  })

  test.runIf(wanted('redis'))('T57 a signal that comes while a tick begins starts nothing', async () => {
    await using server = await startRedis()
    await using proxy = await startProxy({ host: '127.0.0.1', port: server.port })
    await using client = await openLocker(server.url)
    const url = `redis://127.0.0.1:${proxy.port}?fencing=clock-backed`
    const flags = ['--url', url, '--cron', '* * * * * *', ...shell('echo ran >>"$TRACE"')]
    const ticking = start(['schedule', 'x', ...flags], { env })
    await trace.has('ran')
    proxy.delay(100)
    // Whether it may run is asked for at the engine, whose answer is on its way.
    await waitFor('a tick', async () => (await client.inspect('x'))?.data?.includes('started') || null)
    const before = trace.lines
    ticking.kill('SIGTERM')
    expect((await ticking.ended).code).toBe(143)
    expect(trace.lines).toEqual(before)
  })

  test.each(['skip', 'rerun'])(
    '--policy %s decides whether a tick that was killed starts again',
    async (policy) => {
      const script = `echo "$HOLDFAST_TICK" >>"$TRACE"; mkdir "$TRACE.first" 2>/dev/null && while [ -e "$TRACE" ]; do sleep 0.02; done; exit 0`
      const flags = ['--cron', '* * * * * *', '--ttl', '900ms', '--policy', policy, ...shell(script)]
      const killed = start(['schedule', 'x', ...flags], { env })
      await waitFor('a tick', async () => trace.lines[0] ?? null)
      killed.kill('SIGKILL')
      const next = start(['schedule', 'x', ...flags], { env })
      await waitFor('another start', async () => trace.lines[1] ?? null)
      next.kill('SIGTERM')
      await next.ended
      const [tick] = trace.lines
      expect(trace.lines.filter((line) => line === tick)).toHaveLength(policy === 'rerun' ? 2 : 1)
    },
  )

  test('a command that cannot be run leaves no watchdog behind, tick after tick', async () => {
    const failing = start(['schedule', 'x', '--cron', '* * * * * *', '--', ''], { env })
    let told = ''
    failing.process.stderr?.on('data', (text: string) => (told += text))
    await waitFor('two ticks', async () => told.split('\n').length > 2 || null)
    await waitFor('no child', async () => childrenOf(failing.process.pid ?? 0).length === 0 || null)
    expect(told).toMatch(/^(holdfast: "" was not found\.\n)+$/)
    failing.kill('SIGTERM')
    expect((await failing.ended).code).toBe(143)
  })

  test('a failure of the command is told, and a signal to it ends the schedule', async () => {
    const failing = start(['schedule', 'x', '--cron', '* * * * * *', ...shell('exit 3')], { env })
    let told = ''
    failing.process.stderr?.on('data', (text: string) => (told += text))
    await waitFor('the failure', async () => told.includes('ended with 3') || null)
    failing.kill('SIGTERM')
    expect((await failing.ended).code).toBe(143)
    const script = `trap 'exit 0' TERM; echo begin >>"$TRACE"; ${FOREVER}`
    const running = start(['schedule', 'y', '--cron', '* * * * * *', ...shell(script)], { env })
    await trace.has('begin')
    running.kill('SIGTERM')
    expect((await running.ended).code).toBe(143)
  })
})
