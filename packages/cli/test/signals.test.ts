import { createFakeClock } from 'holdfast/testing'
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { Signals } from '../src/signals.ts'
import { forgetListeners } from './command.ts'

// Vitest has listeners of its own for the others.
const names = ['SIGHUP', 'SIGQUIT', 'SIGUSR2'] as const

beforeEach(forgetListeners)

test.each([
  [
    'on a terminal the kernel has sent SIGQUIT to the command itself, so it is not sent twice',
    true,
    ['SIGHUP', 'SIGUSR2'],
  ],
  ['without a terminal each signal is passed on', false, names],
] as const)('%s', (_, hasTerminal, expected) => {
  const signals = new Signals()
  const got: string[] = []
  const unpass = signals.pass((signal) => got.push(signal), hasTerminal)
  for (const name of names) process.emit(name, name)
  expect(got).toEqual(expected)
  expect(signals.cancelled.aborted).toBe(false)
  unpass()
  // SIGQUIT asks for an end, whoever got it.
  signals.cancelIfAsked()
  expect(signals.cancelled.reason).toMatchObject({ exitCode: 131 })
})

test('a second signal ends the process at once, but not one that came with the first (npx passes on what it got as well)', () => {
  const exit = vi.spyOn(process, 'exit').mockReturnValue(undefined as never)
  onTestFinished(() => exit.mockRestore())
  const clock = createFakeClock()
  const { cancelled } = new Signals(clock)
  process.emit('SIGHUP', 'SIGHUP')
  expect(cancelled.reason).toMatchObject({ exitCode: 129 })
  clock.block(999)
  process.emit('SIGQUIT', 'SIGQUIT')
  expect(exit).not.toHaveBeenCalled()
  clock.block(1)
  process.emit('SIGQUIT', 'SIGQUIT')
  expect(exit).toHaveBeenCalledExactlyOnceWith(131)
})

test('work that begins after a signal ends as well', async () => {
  const signals = new Signals()
  process.emit('SIGHUP', 'SIGHUP')
  await expect(signals.unlessCancelled(new Promise(() => {}))).rejects.toMatchObject({ exitCode: 129 })
})
