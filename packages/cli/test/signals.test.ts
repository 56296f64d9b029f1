import { expect, onTestFinished, test } from 'vitest'
import { Signals } from '../src/signals.ts'

// Vitest has listeners of its own for the others.
const names = ['SIGHUP', 'SIGQUIT', 'SIGUSR2'] as const

test.each([
  [
    'on a terminal the kernel has sent SIGQUIT to the command itself, so it is not sent twice',
    true,
    ['SIGHUP', 'SIGUSR2'],
  ],
  ['without a terminal each signal is passed on', false, names],
] as const)('%s', (_, hasTerminal, expected) => {
  const before = new Map(
    process.eventNames().map((name) => [name, process.listeners(name as NodeJS.Signals)]),
  )
  const signals = new Signals()
  onTestFinished(() => {
    for (const name of process.eventNames() as NodeJS.Signals[])
      for (const listener of process.listeners(name))
        if (!before.get(name)?.includes(listener)) process.removeListener(name, listener as () => void)
  })
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
