/** Web Locks on real nodes of Redlock: an engine that polls, without shared leases and without fences. */
import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createLocker } from '../../src/locker/locker.ts'
import { type WebLock, webLocks } from '../../src/web-locks.ts'
import { type Nodes, startNodes } from './nodes.ts'

const name = 'invoices/2026-11'

const unreached = () => {
  throw new Error('the callback was called')
}

describe.runIf(wanted('redis'))('Web Locks on redlock', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes({ count: 3 })
  })
  afterAll(() => nodes?.stop())

  const fleet = async () => {
    const open = async (holder: string) => createLocker(await nodes.backend({ direct: true }), { holder })
    return [await open('ada'), await open('bob')] as const
  }

  test('Fleet: G12 mode shared is refused with UNSUPPORTED, and nothing is held', async () => {
    const [locker] = await fleet()
    const locks = webLocks(locker)
    for (const ifAvailable of [false, true])
      await expect(locks.request(name, { mode: 'shared', ifAvailable }, unreached)).rejects.toMatchObject({
        code: 'UNSUPPORTED',
      })
    expect(await locks.query()).toEqual({ held: [], pending: [] })
    await locker.close()
  })

  test('Fleet: requests exclude each other and wait, query() shows no pending ones, and steal works', async () => {
    const [ada, bob] = await fleet()
    const locks = webLocks(ada)
    const others = webLocks(bob, { allowSteal: true })
    const granted = Promise.withResolvers<WebLock<'unfenced'>>()
    const work = Promise.withResolvers<string>()
    const holder = locks.request(name, (lock) => {
      granted.resolve(lock)
      return work.promise
    })
    const { lease } = await granted.promise
    expect(lease.fence).toBeUndefined()
    expect(await others.request(name, { ifAvailable: true }, (lock) => lock)).toBeNull()
    const waiter = others.request(name, () => 'waited')
    expect(await others.query()).toEqual({
      held: [{ name, mode: 'exclusive', clientId: 'ada' }],
      pending: [],
    })
    work.resolve('done')
    expect(await Promise.all([holder, waiter])).toEqual(['done', 'waited'])

    const stuck = Promise.withResolvers<WebLock<'unfenced'>>()
    const broken = locks
      .request(name, (lock) => {
        stuck.resolve(lock)
        return new Promise((resolve) => lock.lease.signal.addEventListener('abort', resolve))
      })
      .catch((error: unknown) => error)
    const lock = await stuck.promise
    expect(await others.request(name, { steal: true }, (stolen) => stolen?.name)).toBe(name)
    // Its keep-alive would tell it as well, some seconds later.
    await expect(lock.lease.renew()).rejects.toMatchObject({ code: 'LEASE_LOST' })
    const error = await broken
    expect(error).toMatchObject({ name: 'AbortError', cause: { code: 'LEASE_LOST' } })
    await Promise.all([ada.close(), bob.close()])
  })
})
