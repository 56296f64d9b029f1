/** The order in which events and looks may come, which engines show only now and then. */
import { expect, test } from 'vitest'
import { sleep } from '../../base/clock.ts'
import { BackendUnavailableError, ClosedError } from '../../base/errors.ts'
import type { Locker } from '../../base/types.ts'
import type { WatchEvent } from '../../spi.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { observeLeaders } from './leader.ts'

const NAME = 'leader'
const gap: WatchEvent = { kind: 'gap', cursor: '' }
const event = (text: string): WatchEvent => {
  const [kind, id = ''] = text.split(' ')
  return { kind: kind as 'acquired', name: NAME, id, holder: id, token: null, cursor: '' }
}

/** Watches tell these events, one list for each watch; `error` and `closed` fail, `wait` takes long. Each look finds the next of `looks`. */
async function observed(watches: readonly (readonly string[])[], looks: readonly string[]): Promise<string> {
  const clock = createFakeClock()
  const [leftWatches, leftLooks] = [[...watches], [...looks]]
  const locker = {
    clock,
    async *watch(_name: string, { signal }: { readonly signal: AbortSignal }) {
      for (const text of leftWatches.shift() ?? []) {
        if (text === 'wait') await sleep(clock, 20_000, { signal }).catch(() => {})
        if (signal.aborted) return
        if (text === 'wait') continue
        if (text === 'error') throw new BackendUnavailableError('test', 'away', 'not-applied')
        if (text === 'closed') throw new ClosedError()
        yield text === 'gap' ? gap : event(text)
      }
    },
    async inspect() {
      const [id = '', value] = (leftLooks.shift() ?? '').split('=')
      const holders = id === '' ? [] : [{ id, holder: id, token: null }]
      return { holders, ...(value !== undefined && { data: JSON.stringify({ id, value }) }) }
    },
  } as unknown as Locker<'unfenced'>
  const told: string[] = []
  let isOver = false
  const consuming = (async () => {
    for await (const leader of observeLeaders(locker, NAME, undefined))
      told.push(
        leader === null ? '–' : leader.value === undefined ? leader.id : `${leader.id}=${leader.value}`,
      )
  })().finally(() => {
    isOver = true
  })
  consuming.catch(() => {})
  while (!isOver) await clock.advance(100)
  await consuming
  expect(leftLooks).toEqual([])
  return told.join(' ')
}

test('the picture after a gap tells nothing new', async () => {
  expect(await observed([['gap', 'acquired a']], ['a'])).toBe('a')
})

test('events that are older than the look are left out', async () => {
  const missed = ['acquired a', 'waiting b', 'released a', 'acquired c', 'expired c', 'acquired b']
  expect(await observed([['gap', ...missed, 'released b', 'acquired d']], ['b'])).toBe('b – d')
})

test('ends of other leases, and waiters, change nothing', async () => {
  const events = ['gap', 'acquired a', 'waiting b', 'released x', 'gave-up b', 'ended a']
  expect(await observed([events], ['a'])).toBe('a –')
})

test('a value is told once, and only of the leader that it was told of', async () => {
  expect(await observed([['gap', 'acquired a', 'data a', 'data a']], ['', 'a=1', 'a=1'])).toBe('– a a=1')
  // Another one leads by the time of the look: its own events tell.
  expect(await observed([['gap', 'acquired a', 'data a', 'released a', 'acquired b']], ['', 'b=2'])).toBe(
    '– a – b',
  )
})

test('after a failure it looks again, and tells what has changed', async () => {
  expect(
    await observed(
      [
        ['gap', 'acquired a', 'error'],
        ['gap', 'acquired a'],
      ],
      ['a', 'a'],
    ),
  ).toBe('a')
  expect(await observed([['gap', 'acquired a', 'error'], ['error'], ['gap', 'acquired b']], ['a', 'b'])).toBe(
    'a b',
  )
  expect(await observed([['gap', 'acquired a', 'gap']], ['a', ''])).toBe('a –')
})

test('a leader that no event confirms is looked for again', async () => {
  expect(
    await observed(
      [
        ['gap', 'wait', 'acquired b'],
        ['gap', 'acquired b'],
      ],
      ['a', 'b'],
    ),
  ).toBe('a b')
  expect(await observed([['gap', 'acquired a', 'wait', 'released a']], ['a'])).toBe('a –')
  expect(await observed([['gap', 'wait', 'acquired a']], [''])).toBe('– a')
})

test('a term that is over is not told again by an older event', async () => {
  // The picture after the second gap has a, which ends before the look.
  expect(
    await observed([['gap', 'acquired a', 'gap', 'acquired a', 'released a', 'acquired b']], ['a', '']),
  ).toBe('a – b')
  expect(
    await observed(
      [['gap', 'acquired a', 'data a', 'gap', 'acquired a', 'data a', 'ended a']],
      ['a', 'a=1', ''],
    ),
  ).toBe('a a=1 –')
})

test('a locker that was closed meanwhile ends it', async () => {
  expect(await observed([['gap', 'acquired a', 'error'], ['closed']], ['a'])).toBe('a')
})

test('a failure before the first look is thrown', async () => {
  await expect(observed([['error']], [])).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
})
