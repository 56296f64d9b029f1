import { describe, expect, test, vi } from 'vitest'
import { createFaultyRig } from '../../test/faulty-rig.ts'
import type { AcquireTimeoutError } from '../base/errors.ts'
import { TransientMap } from '../base/transient-map.ts'

const timeoutOf = (acquiring: Promise<unknown>) =>
  acquiring.then(
    () => {
      throw new Error('it was granted')
    },
    (error: AcquireTimeoutError) => {
      expect(error.code).toBe('ACQUIRE_TIMEOUT')
      return error
    },
  )

function setUp() {
  const rig = createFaultyRig()
  const { client, faults } = rig.faulty({ holder: 'ours', callTimeoutMs: 1_000 })
  return { ...rig, client, faults, other: rig.locker({ holder: 'theirs' }) }
}

describe('an acquire that times out', () => {
  test('names the holder', async () => {
    const { clock, client, other } = setUp()
    const lease = await other.acquire('a', { ttlMs: 60_000, note: 'nightly "report"' })
    const failure = timeoutOf(client.acquire('a', { waitMs: 500 }))
    await clock.advance(500)
    const error = await failure
    expect(error.message).toBe(
      `"a" was not free within 500 ms. It is held by "theirs" (lease ${lease.id}, for 500 ms, "nightly \\"report\\""). ` +
        'locker.inspect(name) also shows the waiters; raise waitMs to wait longer.',
    )
    expect(error).toMatchObject({ waitedMs: 500, heldByThisLocker: false })
    expect(error.holders).toMatchObject([{ id: lease.id, holder: 'theirs', token: lease.fence.token }])
    expect(JSON.parse(JSON.stringify(error))).toMatchObject({
      holders: [{ token: String(lease.fence.token) }],
    })
  })

  test('says so when it is its own locker, and that locks are not re-entrant', async () => {
    const { clock, client } = setUp()
    const failure = timeoutOf(
      client.withLease('a', { ttlMs: 60_000 }, () => client.acquire('a', { waitMs: 500 })),
    )
    await clock.advance(500)
    const error = await failure
    expect(error.message).toMatch(/held by this locker \(lease .*not re-entrant/)
    expect(error.heldByThisLocker).toBe(true)
  })

  test('another locker of the same label is not taken for this one', async () => {
    const { clock, client, locker } = setUp()
    await locker({ holder: 'ours' }).acquire('a', { ttlMs: 60_000 })
    const failure = timeoutOf(client.acquire('a', { waitMs: 500 }))
    await clock.advance(500)
    expect(await failure).toMatchObject({
      heldByThisLocker: false,
      message: expect.stringMatching(/held by "ours"/),
    })
  })

  test('names three of many holders, its own first, and counts the others', async () => {
    const { clock, client, other } = setUp()
    for (let count = 0; count < 4; count++) await other.acquirePermits('s', { capacity: 5, ttlMs: 60_000 })
    await client.acquirePermits('s', { capacity: 5, ttlMs: 60_000 })
    const failure = timeoutOf(client.acquirePermits('s', { capacity: 5, waitMs: 500 }))
    await clock.advance(500)
    const error = await failure
    expect(error.message).toMatch(
      /held by this locker \(lease .*\) and "theirs" \(.*\) and "theirs" \(.*\) and 2 more\./,
    )
    expect(error.message).not.toMatch(/re-entrant/)
    expect(error.holders).toHaveLength(5)
  })

  test('a name that is closed after its holder says for how long', async () => {
    const { clock, client, other } = setUp()
    const lease = await other.acquire('a', { ttlMs: 60_000, holdAtLeastMs: 10_000 })
    await lease.release()
    const failure = timeoutOf(client.acquire('a', { waitMs: 500 }))
    await clock.advance(500)
    expect(await failure).toMatchObject({
      holders: [],
      message: expect.stringMatching(/closed for 9500 ms more/),
    })
  })

  test('many at once on one name look once', async () => {
    const { clock, client, faults, other } = setUp()
    await other.acquire('a', { ttlMs: 60_000 })
    faults.next('inspect', { kind: 'late-reply', ms: 5 })
    const failures = Array.from({ length: 100 }, () => timeoutOf(client.acquire('a', { waitMs: 500 })))
    await clock.advance(505)
    for (const error of await Promise.all(failures)) expect(error.holders).toHaveLength(1)
    expect(faults.count('inspect')).toBe(1)
  })

  test('an engine that does not answer delays the error by 200 ms, and it comes without names', async () => {
    const { clock, client, faults, other } = setUp()
    await other.acquire('a', { ttlMs: 60_000 })
    faults.next('inspect', { kind: 'lost-reply' })
    let ended = false
    const failure = timeoutOf(client.acquire('a', { waitMs: 500 })).finally(() => {
      ended = true
    })
    await clock.advance(699)
    expect(ended).toBe(false)
    await clock.advance(1)
    expect(await failure).toMatchObject({
      waitedMs: 500,
      holders: undefined,
      message: expect.stringMatching(/locker\.inspect\(name\) shows its holders and waiters/),
    })
  })

  test('an engine that fails at it does not delay the error; what the locker knows itself is said', async () => {
    const { clock, client, faults } = setUp()
    const lease = await client.acquire('a', { ttlMs: 60_000 })
    faults.next('inspect', { kind: 'error-before' })
    const failure = timeoutOf(client.acquire('a', { waitMs: 500 }))
    await clock.advance(500)
    expect(await failure).toMatchObject({
      holders: undefined,
      heldByThisLocker: true,
      message: expect.stringContaining(`This locker has a lease on it (${lease.id})`),
    })
  })

  test('T27 a caller that gives up has the error at once', async () => {
    const { clock, client, faults, other } = setUp()
    await other.acquire('a', { ttlMs: 60_000 })
    faults.next('inspect', { kind: 'lost-reply' })
    const caller = new AbortController()
    const failure = timeoutOf(client.acquire('a', { waitMs: 500, signal: caller.signal }))
    await clock.advance(500)
    caller.abort()
    expect(await failure).toMatchObject({ holders: undefined, heldByThisLocker: false })
  })

  test('T27 a caller that gives up still learns that its own locker has it', async () => {
    const { clock, client, faults } = setUp()
    await client.acquire('a', { ttlMs: 60_000 })
    faults.next('inspect', { kind: 'lost-reply' })
    const caller = new AbortController()
    const failure = timeoutOf(client.acquire('a', { waitMs: 500, signal: caller.signal }))
    await clock.advance(500)
    caller.abort()
    expect(await failure).toMatchObject({ holders: undefined, heldByThisLocker: true })
  })

  test('closing the locker ends the look', async () => {
    const { clock, client, faults, other } = setUp()
    await other.acquire('a', { ttlMs: 60_000 })
    faults.next('inspect', { kind: 'lost-request' })
    const failure = timeoutOf(client.acquire('a', { waitMs: 500 }))
    await clock.advance(500)
    const closing = client.close()
    await failure
    await closing
  })

  test('short waits and tries make no other call', async () => {
    const { clock, client, faults, other } = setUp()
    await other.acquire('a', { ttlMs: 60_000 })
    expect(await client.tryAcquire('a')).toBeNull()
    await timeoutOf(client.acquire('a', { waitMs: 0 }))
    const failure = timeoutOf(client.acquire('a', { waitMs: 20 }))
    await clock.advance(20)
    expect(await failure).toMatchObject({ holders: undefined, heldByThisLocker: false })
    expect(faults.count('inspect')).toBe(0)
  })

  test.each([0, 20])('a wait of %i ms learns without a call that its own locker has it', async (waitMs) => {
    const { clock, client, faults } = setUp()
    const lease = await client.acquire('a', { ttlMs: 60_000 })
    const failure = timeoutOf(client.acquire('a', { waitMs }))
    await clock.advance(waitMs)
    expect(await failure).toMatchObject({
      holders: undefined,
      heldByThisLocker: true,
      message: expect.stringMatching(`This locker has a lease on it \\(${lease.id}\\).*not re-entrant`),
    })
    const permit = await client.acquirePermits('s', { capacity: 1, ttlMs: 60_000 })
    const taken = timeoutOf(client.acquirePermits('s', { capacity: 1, waitMs }))
    await clock.advance(waitMs)
    const { message } = await taken
    expect(message).toContain(`This locker has a lease on it (${permit.id})`)
    expect(message).not.toContain('re-entrant')
    expect(faults.count('inspect')).toBe(0)
  })

  test('acquireAll names the holder although little of its time was left for the last name', async () => {
    const { clock, client, faults, other } = setUp()
    const first = await other.acquire('a', { ttlMs: 60_000 })
    await other.acquire('b', { ttlMs: 60_000 })
    const failure = timeoutOf(client.acquireAll(['a', 'b'], { waitMs: 500 }))
    await clock.advance(490)
    await first.release()
    await clock.advance(10)
    expect(await failure).toMatchObject({ resource: 'b', holders: [{ holder: 'theirs' }] })
    expect(faults.count('inspect')).toBe(1)
  })

  test('several leases of its own locker are named together', async () => {
    const { clock, client } = setUp()
    const ids: string[] = []
    for (let count = 0; count < 4; count++)
      ids.push((await client.acquirePermits('s', { capacity: 4, ttlMs: 60_000 })).id)
    const failure = timeoutOf(client.acquirePermits('s', { capacity: 4, waitMs: 500 }))
    await clock.advance(500)
    const { message } = await failure
    expect(message).toContain(`held by this locker (4 leases: ${ids.slice(0, 3).join(', ')}, …). locker.`)
  })

  test('the next timeout on a name looks again', async () => {
    const { clock, client, faults, other } = setUp()
    const namedAfter = async () => {
      const lease = await other.acquire('a', { ttlMs: 60_000 })
      const failure = timeoutOf(client.acquire('a', { waitMs: 500 }))
      await clock.advance(500)
      expect((await failure).holders).toMatchObject([{ id: lease.id }])
      await lease.release()
    }
    await namedAfter()
    await namedAfter()
    expect(faults.count('inspect')).toBe(2)
  })

  test.each([20, 500])('does not walk the leases that its locker holds (waitMs %i)', async (waitMs) => {
    const { clock, client, other } = setUp()
    for (let count = 0; count < 100; count++) await client.acquire(`held ${count}`, { ttlMs: 60_000 })
    await other.acquire('a', { ttlMs: 60_000 })
    const timeOut = async () => {
      const failure = timeoutOf(client.acquire('a', { waitMs }))
      await clock.advance(waitMs)
      await failure
    }
    // The first one notes the leases by name.
    await timeOut()
    const walks = (['values', 'entries', 'keys', 'forEach'] as const).map((method) =>
      vi.spyOn(TransientMap.prototype, method),
    )
    await timeOut()
    for (const walk of walks) {
      expect(walk).not.toHaveBeenCalled()
      walk.mockRestore()
    }
  })
})
