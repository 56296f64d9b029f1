import { readFileSync } from 'node:fs'
import type { LeaseBase } from 'holdfast'
import { createFakeClock } from 'holdfast/testing'
import { waitFor } from 'holdfast-lab/servers'
import { expect, onTestFinished, test } from 'vitest'
import { Signals } from '../src/signals.ts'
import { runUnderLease } from '../src/under-lease.ts'
import { FOREVER, forgetListeners, gone, isRunning, LOUD, Trace } from './command.ts'

test('T57 a group is waited for after SIGKILL, too, and not without end', async () => {
  forgetListeners()
  const trace = new Trace()
  const clock = createFakeClock()
  const loss = new AbortController()
  const lease = { name: 'x', remainingMs: 60_000, signal: loss.signal } as Partial<LeaseBase> as LeaseBase
  // What has ended stays in the group while its parent, which has left the group, does not collect it.
  const parent = 'sleep 600 & echo "parent $$" >>"$TRACE"; exec setsid sleep 601'
  const script = `sh -c '${parent}' & echo "pid $$" >>"$TRACE"; wait`
  const env = { ...process.env, TRACE: trace.path }
  const stopping = { clock, stopInMs: 4_000, signals: new Signals(clock) }
  let end: unknown
  runUnderLease(lease, ['sh', '-c', script], env, stopping).then((is) => (end = is))
  const [pid, left] = [await trace.pid('pid'), await trace.pid('parent')]
  onTestFinished(() => void process.kill(left, 'SIGKILL'))
  const hasLeft = () => readFileSync(`/proc/${left}/cmdline`, 'utf8').startsWith('sleep')
  await waitFor('it has left the group', async () => hasLeft() || null)
  loss.abort(Object.assign(new Error('lost'), { reason: 'force-released' }))
  await gone(pid)
  await clock.advance(4_000)
  await clock.advance(499)
  expect(end).toBeUndefined()
  await clock.advance(21)
  expect(end).toEqual({ exitCode: 79, isStopped: true })
})

test('a lease that is as good as over starts no command', async () => {
  forgetListeners()
  const trace = new Trace()
  const clock = createFakeClock()
  const { signal } = new AbortController()
  const lease = { name: 'x', remainingMs: 500, signal } as Partial<LeaseBase> as LeaseBase
  const stopping = { clock, stopInMs: 4_000, signals: new Signals(clock) }
  const command = ['sh', '-c', `echo ran >'${trace.path}'`]
  expect(await runUnderLease(lease, command, process.env, stopping)).toEqual({
    exitCode: 79,
    isStopped: true,
  })
  expect(trace.lines).toEqual([])
})

test('T57 what ignores SIGTERM gets SIGKILL while a little of the lease is left', async () => {
  forgetListeners()
  const trace = new Trace()
  const clock = createFakeClock()
  const endMs = clock.monotonicMs() + 60_000
  const lease = {
    name: 'x',
    signal: new AbortController().signal,
    get remainingMs() {
      return endMs - clock.monotonicMs()
    },
  } as Partial<LeaseBase> as LeaseBase
  const script = `trap 'echo term >>"$TRACE"' TERM; ${LOUD}; ${FOREVER}`
  const env = { ...process.env, TRACE: trace.path }
  const stopping = { clock, stopInMs: 4_000, signals: new Signals(clock) }
  const end = runUnderLease(lease, ['sh', '-c', script], env, stopping)
  const pid = await trace.pid('pid')
  await clock.advance(56_000)
  await trace.has('term')
  await clock.advance(3_499)
  expect(isRunning(pid)).toBe(true)
  await clock.advance(1)
  await gone(pid)
  await clock.advance(500)
  await clock.advance(20)
  expect(await end).toEqual({ exitCode: 79, isStopped: true })
})
