/** When a request is asked again, which answer counts, and what is said of its outcome. */
import { beforeEach, describe, expect, test } from 'vitest'
import { callWith } from '../base/aborting.ts'
import { Cancellation } from '../base/cancellation.ts'
import { BackendUnavailableError, type CallOutcome, HoldfastError, UnsupportedError } from '../base/errors.ts'
import type { Call } from '../spi.ts'
import { createFakeClock, type FakeClock } from '../testing/fake-clock.ts'
import { askAgain } from './asking-again.ts'

/** By the sender's measure. */
const AGAIN_AFTER_MS = 1_000

interface Copy {
  readonly call: Call
  readonly answer: (answer: string) => void
  readonly fail: (error: unknown) => void
}

const unavailable = (what: string, outcome: CallOutcome) => new BackendUnavailableError('acme', what, outcome)
const lost = () => unavailable('the connection was lost', 'unknown')
const noLeader = () => unavailable('no leader', 'not-applied')
const full = () => unavailable('the disk is full', 'not-applied')
const denied = () => new UnsupportedError('the user may not write')

describe('T98 a request that may be asked again', () => {
  let clock: FakeClock
  let copies: Copy[]
  let again: number
  let isOver: boolean
  beforeEach(() => {
    clock = createFakeClock()
    copies = []
    again = 0
    isOver = false
  })

  function ask(call: Call = callWith(), limitMs = 20_000) {
    const result: { answer?: string; error?: unknown } = {}
    askAgain<string>(
      {
        backend: 'acme',
        clock,
        untilMs: clock.monotonicMs() + limitMs,
        isOver: () => isOver,
        asTold: (error) => (error instanceof HoldfastError ? error : unavailable(String(error), 'unknown')),
        isForAnotherMember: (error) => error instanceof Error && error.message.includes('no leader'),
        isBeforeElection: (error) =>
          error instanceof Error && error.message.includes('leader is not reached'),
        onAgain: () => again++,
        send: (copy, onSilence) =>
          new Promise((answer, fail) => {
            const silence = clock.setTimer(AGAIN_AFTER_MS, onSilence)
            const settled = () => silence.cancel()
            copy.onCancel(() => {
              settled()
              fail(unavailable('the call was cancelled', 'unknown'))
            })
            copies.push({
              call: copy,
              answer: (text) => {
                settled()
                answer(text)
              },
              fail: (error) => {
                settled()
                fail(error)
              },
            })
          }),
      },
      call,
    ).then(
      (answer) => {
        result.answer = answer
      },
      (error: unknown) => {
        result.error = error
      },
    )
    return result
  }

  test('is asked once, if it is answered', async () => {
    const result = ask()
    copies[0]?.answer('a')
    await clock.advance(60_000)
    expect(result).toEqual({ answer: 'a' })
    expect([copies.length, again, clock.pendingTimers]).toEqual([1, 0, 0])
  })

  test('is asked again after a silence, and the first answer of any copy counts', async () => {
    const result = ask()
    await clock.advance(AGAIN_AFTER_MS - 1)
    expect(copies).toHaveLength(1)
    await clock.advance(1)
    expect([copies.length, again]).toEqual([2, 1])
    expect(copies[0]?.call.cancelled).toBe(false)
    copies[0]?.answer('first')
    await clock.settle()
    expect(result).toEqual({ answer: 'first' })
    expect(copies[1]?.call.cancelled).toBe(true)
    await clock.advance(60_000)
    expect([copies.length, clock.pendingTimers]).toEqual([2, 0])
  })

  test('is asked again before an election, also after the first copy, and was not applied if none was', async () => {
    const refused = () => unavailable('the leader is not reached', 'not-applied')
    const result = ask()
    copies[0]?.fail(refused())
    await clock.advance(200)
    expect(copies).toHaveLength(2)
    copies[1]?.answer('b')
    await clock.settle()
    expect(result).toEqual({ answer: 'b' })
    const given = new Cancellation()
    const other = ask(given)
    copies[2]?.fail(refused())
    await clock.settle()
    given.cancel(new Error('given up'))
    await clock.settle()
    expect(other.error).toMatchObject({ outcome: 'not-applied' })
  })

  test('an answer that comes in a pause ends it: no other copy is asked', async () => {
    const result = ask()
    await clock.advance(AGAIN_AFTER_MS)
    copies[1]?.fail(lost())
    await clock.settle()
    copies[0]?.answer('first')
    await clock.settle()
    expect(result).toEqual({ answer: 'first' })
    await clock.advance(60_000)
    expect([copies.length, again, clock.pendingTimers]).toEqual([2, 1, 0])
  })

  test('is asked again after a pause, as long as members say that there is no leader', async () => {
    const result = ask()
    copies[0]?.fail(lost())
    for (let copy = 1; copy <= 5; copy++) {
      await clock.advance(200)
      expect(copies).toHaveLength(copy + 1)
      copies[copy]?.fail(noLeader())
    }
    await clock.advance(200)
    copies[6]?.answer('elected')
    await clock.settle()
    expect(result).toEqual({ answer: 'elected' })
  })

  test.each([noLeader, full, denied])(
    'is not asked again if it was refused at once (%o)',
    async (refusal) => {
      const result = ask()
      copies[0]?.fail(refusal())
      await clock.advance(60_000)
      expect(copies).toHaveLength(1)
      expect(result.error).not.toMatchObject({ outcome: 'unknown' })
    },
  )

  test.each([full, denied])('G11 is unknown if a copy before the refused one is (%o)', async (refusal) => {
    const failed = ask()
    copies[0]?.fail(lost())
    await clock.advance(200)
    copies[1]?.fail(refusal())
    await clock.settle()
    expect(failed.error).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    const silent = ask()
    await clock.advance(AGAIN_AFTER_MS)
    copies[3]?.fail(refusal())
    await clock.settle()
    expect(silent.error).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    expect(copies[2]?.call.cancelled).toBe(true)
  })

  test('G11 ends with its call: in flight, and in a pause', async () => {
    for (const isInFlight of [true, false]) {
      const call = new Cancellation()
      const result = ask(call)
      if (!isInFlight) copies.at(-1)?.fail(lost())
      await clock.settle()
      call.cancel(new Error('too long'))
      await clock.settle()
      expect(result.error).toMatchObject({ outcome: 'unknown' })
      const sent = copies.length
      await clock.advance(60_000)
      expect([copies.length, clock.pendingTimers]).toEqual([sent, 0])
    }
  })

  test('has no new copies after the end of the client, and is unknown', async () => {
    const result = ask()
    copies[0]?.fail(lost())
    await clock.settle()
    isOver = true
    await clock.advance(200)
    copies[1]?.fail(noLeader())
    await clock.advance(60_000)
    expect(result.error).toMatchObject({ outcome: 'unknown' })
    expect([copies.length, clock.pendingTimers]).toEqual([2, 0])
  })

  test('has no new copies after its limit, and fails when the last of them has', async () => {
    const result = ask(callWith(), 3 * AGAIN_AFTER_MS)
    await clock.advance(60_000)
    expect(copies).toHaveLength(3)
    copies[1]?.fail(lost())
    copies[2]?.fail(noLeader())
    await clock.settle()
    expect(result).toEqual({})
    copies[0]?.fail(lost())
    await clock.settle()
    expect(result.error).toMatchObject({ outcome: 'unknown' })
  })
})
