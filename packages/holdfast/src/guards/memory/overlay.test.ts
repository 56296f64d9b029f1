import { expect, test } from 'vitest'
import { Overlay } from './overlay.ts'

test('changes are seen through the overlay at once, and in the map when they are applied', () => {
  const base = new Map([
    ['kept', 1],
    ['changed', 2],
    ['gone', 3],
  ])
  const overlay = new Overlay(base)
  overlay.set('changed', 20)
  overlay.set('new', 4)
  overlay.delete('gone')
  const changed = { kept: 1, changed: 20, new: 4 }
  expect(Object.fromEntries(overlay.entries())).toEqual(changed)
  for (const [key, value] of Object.entries({ ...changed, gone: undefined, absent: undefined }))
    expect(overlay.get(key)).toBe(value)
  expect(Object.fromEntries(base)).toEqual({ kept: 1, changed: 2, gone: 3 })
  overlay.apply()
  expect(Object.fromEntries(base)).toEqual(changed)
})
