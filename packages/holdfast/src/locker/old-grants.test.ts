/** Grants that arrive when much has happened since they were asked for. */
import { describe, expect, test } from 'vitest'
import { createFaultyRig } from '../../test/faulty-rig.ts'
import { peek, plainCall } from '../../test/rig.ts'

const ttlMs = 9_000

test('G1 G3 a grant whose session has ended meanwhile is not handed out', async () => {
  const { clock, faulty, locker } = createFaultyRig()
  const { client, faults, opened } = faulty()
  const other = await client.acquire('other', { ttlMs })
  faults.next('tryAcquire', { kind: 'late-reply', ms: 500 })
  const trying = peek(client.tryAcquire('a', { ttlMs }))
  await clock.settle()
  // An operator, or the engine’s own mistake, ends the session; the client learns of it before its grant arrives.
  await opened[0]?.close(plainCall)
  await expect(other.renew()).rejects.toMatchObject({ code: 'LEASE_LOST' })
  await clock.advance(600)
  expect(trying.status).toBe('fulfilled')
  const believes = trying.value?.state === 'held'
  const stranger = await locker().tryAcquire('a', { ttlMs })
  expect([believes, stranger !== null].filter(Boolean)).toHaveLength(1)
  // And it is kept alive: a lease on a dead session would be lost at its deadline.
  await clock.advance(ttlMs * 2)
  if (believes) expect(trying.value?.state).toBe('held')
})

/** The last heartbeat is so old that the next grant has to be confirmed, and the keep-alive that would do it hangs. */
async function confirming() {
  const { clock, faulty, locker } = createFaultyRig()
  const { client, faults } = faulty()
  const other = await client.acquire('other', { ttlMs })
  clock.block(ttlMs * 0.8)
  faults.next('keepAlive', { kind: 'frozen' })
  return { clock, client, faults, other, observer: locker() }
}

describe('while an old grant is being confirmed', () => {
  test.each(['tryAcquire', 'acquire'] as const)(
    'G6 G11 an abort of %s throws the caller’s own reason, and nothing stays held',
    async (method) => {
      const { clock, client, faults, other, observer } = await confirming()
      const caller = new AbortController()
      const reason = new Error('enough')
      const asked = peek<unknown>(client[method]('a', { ttlMs, signal: caller.signal }))
      await clock.settle()
      expect(asked.status).toBe('pending')
      expect((await observer.inspect('a'))?.holders).toHaveLength(1)
      caller.abort(reason)
      await clock.settle()
      expect(asked).toMatchObject({ status: 'rejected', reason })
      faults.unfreeze()
      await clock.settle()
      expect(await observer.inspect('a')).toBeNull()
      expect(other.state).toBe('held')
    },
  )

  test('T26 T54 a wait whose time ends there does not hand out late', async () => {
    const { clock, client, faults, observer } = await confirming()
    const asked = peek(client.acquire('a', { ttlMs, waitMs: 300 }))
    await clock.advance(301)
    expect(asked.status).toBe('rejected')
    faults.unfreeze()
    await clock.settle()
    expect(await observer.inspect('a')).toBeNull()
  })
})
