import assert from 'node:assert/strict'
import { test } from 'vitest'
import { createRig } from '../../../../test/rig.ts'
import { type HoldfastEvents, onEvent } from '../../../base/events.ts'
import { showFence } from './postgres-guard.ts'

test('a lease that is over is refused before anything is sent, and that is told', async () => {
  const { locker } = createRig()
  const lease = await locker().acquire('account/7')
  await lease.release()
  const told: HoldfastEvents['guard-refused'][] = []
  const stop = onEvent('guard-refused', (event) => void told.push(event))
  const tx = { query: () => assert.fail('nothing is sent') }
  await assert.rejects(showFence(tx as never, lease), { code: 'LEASE_LOST' })
  stop()
  const { token } = lease.fence
  assert.deepEqual(
    told.map((event) => ({ ...event })),
    [{ guard: 'table-fence', name: 'account/7', token, reason: 'lost', highest: null }],
  )
})
