import { type Server, startPgBouncer, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openLocker } from '../../../open.ts'

describe.runIf(wanted('postgres'))('openLocker postgres:', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  test('opens a locker that is fenced and reaches the cluster, with its options from the URL', async () => {
    const url = `${server.url}?namespace=shop&issuer=bank&epoch=3&schema=elsewhere&application_name=till`
    const locker = await openLocker(url, { require: ['fenced', 'cluster'] })
    expect(locker.info).toMatchObject({ name: 'postgres', namespace: 'shop', issuer: 'bank', epoch: 3 })
    const lease = await locker.acquire('x')
    await lease.release()
    await locker.close()
  })

  test('postgresql: is the same, and two lockers exclude each other', async () => {
    const [one, other] = [
      await openLocker(server.url),
      await openLocker(server.url.replace('postgres:', 'postgresql:')),
    ]
    expect(one.info.issuer).toBe(other.info.issuer)
    const lease = await one.acquire('x')
    expect(await other.tryAcquire('x')).toBeNull()
    const next = other.acquire('x', { waitMs: 20_000 })
    await lease.release()
    await (await next).release()
    await Promise.all([one.close(), other.close()])
  })

  test.runIf(wanted('pgbouncer'))('works through a pooler', async () => {
    await using bouncer = await startPgBouncer({ postgres: server })
    const locker = await openLocker(bouncer.url, { require: 'fenced' })
    await locker.withLease('x', {}, async (lease) => {
      expect(await locker.check(lease.fence)).toBe(true)
    })
    await locker.close()
  })

  test.each(['postgres:', 'postgres:locks', 'postgres://a@b@c/d', 'postgres://host/a/b'])(
    'refuses %s without repeating it',
    async (url) => {
      await expect(openLocker(url)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', argument: 'url' })
    },
  )

  test('a misspelt parameter is refused, and a server that cannot be reached is said to be so', async () => {
    await expect(openLocker(`${server.url}?namspace=x`)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    const failure = await openLocker('postgres://user:hunter2@127.0.0.1:1/db').catch((error: Error) => error)
    expect(failure).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    expect(String(failure)).not.toContain('hunter2')
  })
})
