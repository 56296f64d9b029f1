import { test } from 'vitest'
import { playGuard } from '../../../test/object/schedules.ts'

// The same as schedules.test.ts, which is short enough for planted bugs.
test('T93 objectGuard: nothing is lost or out of order in 20,000 simulated schedules', async () => {
  await playGuard(20_000)
})
