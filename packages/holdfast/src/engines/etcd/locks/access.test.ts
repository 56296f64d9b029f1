/** Certificates, users and rights, a full database, and members that do not serve. */
import { createServer } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { startEtcd, waitFor, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { describeAddresses } from '../../../../test/addresses.ts'
import { base64, openSession, Rig } from '../../../../test/etcd/rig.ts'
import { openLocker } from '../../../open.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { connectionFailure } from '../client/failures.ts'
import { openEtcd } from './assemble.ts'

describe.runIf(wanted('etcd'))('access', () => {
  describeAddresses({
    name: 'etcd',
    protocol: 'HTTP/2',
    start: startEtcd,
    more: (listening) => [
      [
        'a web server with HTTP/2 listens',
        'etcd',
        listening(createServer((_request, response) => response.end('hello'))),
        /HTTP status 200, and not with gRPC.*Check host and port/,
      ],
    ],
  })

  // A host that is down, or has no name, cannot be had on this machine alone.
  test.each([
    ['ETIMEDOUT', /cannot be reached.*the host is up.*firewall/],
    ['EHOSTUNREACH', /cannot be reached.*the host is up.*firewall/],
    ['ENOTFOUND', /is not known.*Check the name/],
  ])('%s', (code, message) => {
    const error = Object.assign(new Error(`connect ${code}`), { code })
    expect(connectionFailure('http://10.0.0.1:2379', false, error)).toMatch(message)
  })

  test('a user and a password: a token that has expired is asked for again, and wrong ones are told', async () => {
    await using rig = await Rig.start({ arguments: ['--auth-token-ttl', '1'] })
    const key = base64('holdfast/1/')
    const perm = { permType: 'READWRITE', key, range_end: base64('holdfast/10') }
    await rig.operate('auth/user/add', { name: 'root', password: 'root' })
    await rig.operate('auth/user/grant', { user: 'root', role: 'root' })
    await rig.operate('auth/role/add', { name: 'locks' })
    await rig.operate('auth/role/grant', { name: 'locks', perm })
    await rig.operate('auth/user/add', { name: 'shop', password: 'p@ss' })
    await rig.operate('auth/user/grant', { user: 'shop', role: 'locks' })
    await rig.operate('auth/user/add', { name: 'stranger', password: 'x' })
    await rig.operate('auth/enable', {})
    const host = rig.hosts[0]?.replace('http://', '') ?? ''
    await using locker = await openLocker(`etcd://shop:p%40ss@${host}`, { ttlMs: 2_000, require: 'fenced' })
    const lease = await locker.acquire('x')
    const renewed = lease.fence.token
    await new Promise((resolve) => setTimeout(resolve, 3_000))
    expect(lease.state).toBe('held')
    expect(await lease.release()).toBe('released')
    expect(renewed).toBeGreaterThan(0n)
    const { hosts } = rig
    const wrong = {
      code: 'UNSUPPORTED',
      message: expect.stringContaining('Correct the user name or the password'),
    }
    await expect(openEtcd({ hosts, username: 'shop', password: 'no' })).rejects.toMatchObject(wrong)
    await expect(openEtcd({ hosts })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    const denied = { code: 'UNSUPPORTED', message: expect.stringContaining('permission denied') }
    await expect(openEtcd({ hosts, username: 'stranger', password: 'x' })).rejects.toMatchObject(denied)
  })

  test('G11 a full database refuses new locks with what to do, and what is held is kept and released', async () => {
    await using rig = await Rig.start({ arguments: ['--quota-backend-bytes', String(2 ** 20)] })
    const backend = await rig.backend()
    const session = await openSession(backend)
    const held = await session.tryAcquire(request('x'), call())
    if (held.kind !== 'granted') throw new Error(held.kind)
    const value = base64('v'.repeat(400_000))
    await waitFor('it is full', () =>
      rig.operate('kv/put', { key: base64('filler'), value }).then(
        () => null,
        () => true,
      ),
    )
    await expect(session.tryAcquire(request('y'), call())).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
      message: expect.stringContaining('NOSPACE'),
    })
    const codes = (await backend.diagnose(call())).map(({ code }) => code)
    expect(codes).toContain('HOLDFAST_ETCD_ALARM')
    expect((await session.keepAlive({ held: [held.grant], waiting: [] }, call())).kind).toBe('alive')
    expect(await session.release(held.grant, { keepForMs: 0 }, call())).toBe('released')
    await session.close(call())
  })

  test('a member that refuses (no leader, a learner) and one that is down are passed over', async () => {
    await using rig = await Rig.start()
    for (const message of ['etcdserver: no leader', 'etcdserver: rpc not supported for learner']) {
      const refusing = createServer().on('stream', (stream) =>
        stream.respond({ ':status': 200, 'grpc-status': '14', 'grpc-message': message }, { endStream: true }),
      )
      await new Promise<void>((resolve) => refusing.listen(0, '127.0.0.1', resolve))
      const { port } = refusing.address() as AddressInfo
      const hosts = [`http://127.0.0.1:${port}`, 'http://127.0.0.1:1', ...rig.hosts]
      const session = await openSession(await rig.backend({ hosts }))
      expect((await session.tryAcquire(request('x'), call())).kind).toBe('granted')
      await session.close(call())
      const alone = openEtcd({ hosts: hosts.slice(0, 1) })
      await expect(alone).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
      refusing.close()
    }
  })

  test('the diagnosis names a member that is down, a small cluster, and a Kubernetes control plane', async () => {
    await using rig = await Rig.start()
    const backend = await rig.backend({ hosts: [...rig.hosts, 'http://127.0.0.1:1'] })
    await rig.operate('kv/put', { key: base64('/registry/pods/default/x'), value: base64('{}') })
    const found = await backend.diagnose(call())
    expect(found.map(({ code, severity }) => [code, severity])).toEqual([
      ['HOLDFAST_ETCD_FEW_MEMBERS', 'warning'],
      ['HOLDFAST_ETCD_MEMBER_DOWN', 'warning'],
      ['HOLDFAST_ETCD_KUBERNETES', 'danger'],
    ])
  })
})
