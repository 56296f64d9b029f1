import { expect, test } from 'vitest'
import { callWith } from '../base/aborting.ts'
import type { WatchEvent } from '../spi.ts'
import { Changes, picture, type ToldEvent, watching } from './watching.ts'

const holder = (id: string): ToldEvent => ({ kind: 'acquired', name: 'n', id, holder: 'h', token: 1n })

async function collect(events: AsyncIterable<WatchEvent>): Promise<WatchEvent[]> {
  const all = []
  for await (const event of events) all.push(event)
  return all
}

test('only the end of a picture is a cursor to go on from', async () => {
  const cursors = { restart: 'gap', end: 'end' }
  const seen = await collect(picture([holder('a'), holder('b')], cursors))
  expect(seen.map(({ kind, cursor }) => [kind, cursor])).toEqual([
    ['gap', 'gap'],
    ['acquired', 'gap'],
    ['acquired', 'end'],
  ])
  expect(await collect(picture([], cursors))).toEqual([{ kind: 'gap', cursor: 'end' }])
})

test('changes wake those that have seen fewer, and cancelled calls', async () => {
  const changes = new Changes()
  const controller = new AbortController()
  const seen = changes.changes
  const woken = changes.next(seen, callWith())
  changes.changed()
  await woken
  await changes.next(seen, callWith())
  const cancelled = changes.next(changes.changes, callWith(controller.signal))
  controller.abort()
  await cancelled
  await changes.next(changes.changes, callWith(controller.signal))
})

test('a watch leaves once, when it is cancelled or ends, and is quiet about its cancellation', async () => {
  const controller = new AbortController()
  let left = 0
  const watch = watching(
    callWith(controller.signal),
    () => ({ leave: () => void left++ }),
    async function* () {
      yield { kind: 'gap' as const, cursor: '1' }
      controller.abort()
      expect(left).toBe(1)
      throw new Error('the engine has noticed the cancellation')
    },
  )
  expect(await collect(watch)).toHaveLength(1)
  expect(left).toBe(1)
  const failing = watching(
    callWith(),
    () => ({ leave: () => void left++ }),
    // biome-ignore lint/correctness/useYield: it fails before the first event
    async function* (): AsyncGenerator<WatchEvent> {
      throw new Error('broken')
    },
  )
  await expect(collect(failing)).rejects.toThrow('broken')
  expect(left).toBe(2)
})
