import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { systemClock } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { asSeenBy, identify, monotonicOffset, ownMachine } from './machine.ts'

describe('which machine this is', () => {
  test.runIf(process.platform === 'linux')('Linux says when it was started', () => {
    const { bootId, timeNamespaceOffset } = ownMachine()
    assert.match(bootId, /^[0-9a-f-]{36}$/)
    assert.match(timeNamespaceOffset, /^-?\d+ -?\d+$/)
    assert.equal(ownMachine(), ownMachine(), 'it is asked once')
  })

  test('T71 the offset of a time namespace is that of the monotonic clock', () => {
    const shifted = 'monotonic      -86400   5000\nboottime         -7200         0\n'
    assert.equal(monotonicOffset(shifted), '-86400 5000')
    assert.equal(monotonicOffset('monotonic           0         0\nboottime            0         0\n'), '0 0')
    assert.equal(monotonicOffset(null), '0 0', 'a kernel without time namespaces')
  })

  test('T71 a clock that counts from the start of the process makes each process a boot of its own', () => {
    const machine = { bootId: 'b', timeNamespaceOffset: '0 0' }
    const { bootId, ...rest } = asSeenBy(systemClock, machine, false)
    assert.match(bootId, /^b\/.{22}$/)
    assert.deepEqual(rest, { timeNamespaceOffset: '0 0' })
    assert.deepEqual(
      asSeenBy(systemClock, machine, false),
      { bootId, ...rest },
      'the same for all of the process',
    )
    assert.equal(asSeenBy(systemClock, machine, true), machine)
    assert.equal(asSeenBy(createFakeClock(), machine, false), machine, 'a clock of the user is trusted')
  })

  test('a system that cannot tell one start from another is refused, and told what to pass', () => {
    assert.throws(
      () => identify('win32'),
      (error) => isHoldfastError(error, 'UNSUPPORTED') && /machine: \{ bootId/.test(error.message),
    )
  })
})
