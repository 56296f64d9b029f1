/** A real etcd whose quota is reached: it takes nothing more, and what is there can be given up, released and kept alive. */
import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { openSession, Rig } from '../../../../test/etcd/rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'

describe.runIf(wanted('etcd'))('an etcd that is full', () => {
  test('T99 refuses new leases, and lets go of waiters and holders; nothing becomes unresolved', async () => {
    await using rig = await Rig.start({ arguments: ['--quota-backend-bytes', String(2 ** 20)] })
    const backend = await rig.backend()
    const session = await openSession(backend)
    const take = async (name: string) => {
      const result = await session.tryAcquire(request(name), call())
      if (result.kind !== 'granted') throw new Error(result.kind)
      return result.grant
    }
    const [held, other, closing] = [await take('held'), await take('other'), await take('closing')]
    const asked = request('held')
    const timeOut = new Cancellation()
    const joined = Promise.withResolvers<void>()
    const waiting = enqueued(session, asked, Object.assign(timeOut, { queued: () => joined.resolve() }))
    await joined.promise
    await rig.fill()

    // Requests of one moment are one transaction. The deletions among them are done.
    const [refused, released] = await Promise.allSettled([
      take('new'),
      session.release(other, { keepForMs: 0 }, call()),
    ])
    expect(refused).toMatchObject({ reason: { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' } })
    expect(refused).toMatchObject({ reason: { message: expect.stringContaining('raise its quota') } })
    expect(released).toMatchObject({ value: 'released' })
    timeOut.cancel(new Error('it has waited for long enough'))
    await expect(waiting).rejects.toMatchObject({ outcome: 'unknown' })
    await session.abandon(asked, call())
    // Never asked for here, so it could land later.
    await session.abandon(request('held'), call())
    expect(await session.release(closing, { keepForMs: 60_000 }, call())).toBe('released')
    const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
    expect(kept).toMatchObject({ kind: 'alive', lost: [], unlisted: [] })
    expect((await rig.keys()).filter(({ key }) => key.includes('\0'))).toHaveLength(1)
    await session.close(call())
    expect(await rig.keys()).toEqual([])
  })
})
