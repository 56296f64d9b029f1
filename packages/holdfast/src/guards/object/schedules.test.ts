import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { playGuard, playNaive } from '../../../test/object/schedules.ts'

describe('objectGuard, in simulated schedules', () => {
  test('T93 T40 no write is lost, refused and applied, applied twice, or after a newer holder', async () => {
    const { calls, done, refused } = await playGuard(1_000)
    assert.ok(done > calls / 4 && refused > calls / 10, `${done} done, ${refused} refused of ${calls}`)
  })

  test('T93 with the token in the metadata, and ETags that repeat with the body, an older write comes after a newer mark', async () => {
    const lost = await playNaive(1_000)
    assert.ok(lost > 50, `in ${lost} of 1000 schedules`)
  })
})
