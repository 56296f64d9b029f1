import { expect, test } from 'vitest'
import { Turns } from './turns.ts'

test('a turn inside a turn of its own is refused, also further in; one of another resource is not', async () => {
  const [one, other] = [new Turns(), new Turns()]
  const inside = await one.take(async () => {
    expect([one.isInside, other.isInside]).toEqual([true, false])
    await expect(one.take(async () => 'never')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    return other.take(async () => {
      await expect(one.take(async () => 'never')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      return 'of the other'
    })
  })
  expect(inside).toBe('of the other')
  expect(one.isInside).toBe(false)
})

test('what a turn has left behind may take another when the turn is over', async () => {
  const turns = new Turns()
  const gate = Promise.withResolvers<void>()
  const later = await turns.take(async () => ({
    promise: gate.promise.then(() => turns.take(async () => 'later')),
  }))
  gate.resolve()
  expect(await later.promise).toBe('later')
})
