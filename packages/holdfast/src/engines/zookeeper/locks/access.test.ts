/** Who may use an ensemble, and what its configuration means for locks. */
import {
  fourLetterWord,
  type Server,
  startZooKeeper,
  waitFor,
  wanted,
  type ZooKeeperEnsemble,
} from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { describeAddresses } from '../../../../test/addresses.ts'
import { openSession } from '../../../../test/zookeeper/rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { systemClock } from '../../../base/clock.ts'
import { systemRandom } from '../../../base/ids.ts'
import { createLocker } from '../../../locker/locker.ts'
import { openLocker } from '../../../open.ts'
import { call } from '../../../testing/conformance/requests.ts'
import { ZooKeeperClient, type ZooKeeperClientOptions } from '../client/index.ts'
import { openZooKeeper } from './assemble.ts'

describe.runIf(wanted('zookeeper'))('access', () => {
  let ensemble: ZooKeeperEnsemble
  let host: string
  beforeAll(async () => {
    ensemble = await startZooKeeper({ settings: { maxSessionTimeout: '120000' } })
    const [member] = ensemble.members
    host = `${member?.host}:${member?.port}`
  })
  afterAll(() => ensemble?.stop())
  const sessions = async () => {
    const dump = await fourLetterWord(ensemble.members[0] as Server, 'dump')
    return new Set(dump.match(/0x[1-9a-f][0-9a-f]*/g)).size
  }

  describeAddresses({
    name: 'zookeeper',
    protocol: "ZooKeeper's protocol",
    query: 'acl=open',
    start: startZooKeeper,
    servesBoth: true,
  })

  test('without an ACL or credentials it is not opened, and a sentence says what to do', async () => {
    const opening = openZooKeeper({ hosts: [host] })
    await expect(opening).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', argument: 'acl' })
  })

  test('clients with the same credentials exclude each other, and others are refused', async () => {
    const url = (user: string) => `zookeeper://${user}@${host}/apps?namespace=shared`
    await using one = await openLocker(url('ada:secret'), { require: ['fenced', 'cluster'] })
    await using other = await openLocker(url('ada:secret'))
    await using held = await one.acquire('x')
    expect(held.state).toBe('held')
    expect(await other.tryAcquire('x')).toBeNull()
    const nobody = `zookeeper://${host}/apps?acl=open&namespace=shared`
    for (const refused of [url('ada:wrong'), url('bob:secret'), nobody]) {
      const opening = openLocker(refused).then((locker) => locker.close())
      await expect(opening).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    }
  })

  test('no session of ours is left when a locker was closed', async () => {
    const locker = await openLocker(`zookeeper://${host}/left?acl=open`, { ttlMs: 2_000 })
    await locker.acquire('x')
    await locker.inspect('x')
    expect(await sessions()).toBe(2)
    await locker.close()
    expect(await sessions()).toBe(0)
  })

  test('no session is left when its node may not be created', async () => {
    await using stack = new AsyncDisposableStack()
    const [chroot, hosts] = ['/unwritable', [host]]
    const sessionOf = (options: Partial<ZooKeeperClientOptions>) => {
      const client = new ZooKeeperClient('operator', { hosts, ...options }, systemClock, systemRandom)
      stack.defer(() => client.close())
      return { client, session: client.shared(call()) }
    }
    const anybody = sessionOf({ acl: 'open' })
    const root = `${chroot}/holdfast/1/default`
    await anybody.client.makePath(root, call())
    const backend = stack.use(await openZooKeeper({ hosts, chroot, username: 'ada', password: 'secret' }))
    const other = sessionOf({ username: 'bob', password: 'secret' })
    // The sessions' parent belongs to somebody else now.
    await (await anybody.session).ask({ op: 'delete', path: `${root}/s` }, call())
    await (await other.session).ask({ op: 'create', path: `${root}/s` }, call())
    const before = await sessions()
    await expect(openSession(backend, 120_000)).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    await waitFor('its session ends', async () => (await sessions()) === before || null)
  })

  test('a parameter of the URL that is wrong is refused', async () => {
    for (const query of ['acl=nobody', 'ca=file.pem', 'password=x', 'sasl=kerberos'])
      await expect(openLocker(`zookeeper://${host}?${query}`)).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
      })
  })

  test('G12 info has the bounds of sessions, and asks for no more than ZooKeeper grants', async () => {
    await using backend = await openZooKeeper({ hosts: [host], acl: 'open' })
    const { ttlMs, issuer, expirySlackMs } = backend.info
    expect(ttlMs).toEqual({ min: 400, max: 120_000, step: 1 })
    expect(issuer).toMatch(/^zookeeper:[0-9a-f]+-[0-9a-f]+\/default$/)
    expect(expirySlackMs(1_000)).toBe(1_200)
    await using again = await openZooKeeper({ hosts: [host], acl: 'open', namespace: 'other' })
    expect(again.info.issuer).toBe(issuer.replace('default', 'other'))
    expect(() => createLocker(backend, { ttlMs: 240_000 })).toThrow(/must be at most 120000/)
  })

  test('diagnose finds what matters, and says what to do', async () => {
    await using backend = await openZooKeeper({ hosts: [host, '127.0.0.1:1'], acl: 'open' })
    const findings = (await backend.diagnose(call())).map(({ code, severity }) => `${severity} ${code}`)
    expect(findings).toEqual([
      'warning HOLDFAST_ZOOKEEPER_OPEN_ACL',
      'warning HOLDFAST_ZOOKEEPER_FEW_MEMBERS',
      'note HOLDFAST_ZOOKEEPER_CONNECTIONS',
      'warning HOLDFAST_ZOOKEEPER_MEMBER_DOWN',
    ])
    const given = new Cancellation()
    given.cancel(new Error('given up'))
    await expect(backend.diagnose(given)).rejects.toMatchObject({ outcome: 'not-applied' })
  })

  test('diagnose says that it may not look, and that members differ', async () => {
    const settings = { '4lw.commands.whitelist': 'srvr', maxSessionTimeout: '9000' }
    await using other = await startZooKeeper({ settings })
    const [member] = other.members
    const hosts = [host, `${member?.host}:${member?.port}`]
    await using backend = await openZooKeeper({ hosts, username: 'ada', password: 'secret' })
    const findings = await backend.diagnose(call())
    expect(findings.map(({ code }) => code)).toEqual([
      'HOLDFAST_ZOOKEEPER_FEW_MEMBERS',
      'HOLDFAST_ZOOKEEPER_BOUNDS',
      'HOLDFAST_ZOOKEEPER_CONNECTIONS',
      'HOLDFAST_ZOOKEEPER_WORDS_OFF',
    ])
    expect(findings[1]?.what).toContain('400 to 120000 ms; 400 to 9000 ms')
  })
})
