import { expect, test } from 'vitest'
import { createFaultyRig } from '../../test/faulty-rig.ts'

test('what an operator asks for is checked before the engine is asked', async () => {
  const { faulty } = createFaultyRig()
  const { client, faults } = faulty()
  const all = { all: true, reason: 'a test' } as const
  for (const call of [
    () => client.forceRelease('', all),
    () => client.forceRelease('a', { ...all, all: false as true }),
    () => client.forceRelease('a', { token: 5 as unknown as bigint, reason: 'a test' }),
    () => client.forceRelease('a', { token: 0n, reason: 'a test' }),
    () => client.forceRelease('a', { id: '', reason: 'a test' }),
    () => client.forceRelease('a', { id: 'x', all: true, reason: 'a test' } as never),
    () => client.resize('', 2),
    () => client.resize('a', 0),
    () => client.forget(''),
  ])
    await expect(call()).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  for (const kind of ['forceRelease', 'resize', 'forget'] as const) expect(faults.count(kind)).toBe(0)
})
