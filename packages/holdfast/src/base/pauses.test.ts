import assert from 'node:assert/strict'
import { test } from 'vitest'
import { growingPauseMs } from './pauses.ts'

test('a pause doubles until it is the longest one, however often it is tried', () => {
  const range = { firstMs: 10, longestMs: 100 }
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5_000].map((tries) => growingPauseMs(tries, range)),
    [10, 20, 40, 80, 100, 100],
  )
})
