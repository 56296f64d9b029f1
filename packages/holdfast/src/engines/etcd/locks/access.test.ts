/** Certificates, users and rights, a full database, and members that do not serve. */
import { readFileSync } from 'node:fs'
import { createServer as createWebServer } from 'node:http'
import { createServer } from 'node:http2'
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net'
import { fileURLToPath } from 'node:url'
import {
  type EtcdOptions as ServerOptions,
  startEtcd,
  startRedis,
  waitFor,
  wanted,
} from 'holdfast-lab/servers'
import { afterAll, describe, expect, test } from 'vitest'
import { base64, openSession, Rig } from '../../../../test/etcd/rig.ts'
import { openLocker } from '../../../open.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { connectionFailure } from '../client/failures.ts'
import { openEtcd } from './assemble.ts'

const fixture = (file: string) =>
  fileURLToPath(new URL(`../../../../test/etcd/fixtures/${file}`, import.meta.url))

describe.runIf(wanted('etcd'))('access', () => {
  test('TLS with certificates on both sides; without the client’s, or with an unknown authority, there is an error', async () => {
    const tls = { ca: fixture('ca.pem'), cert: fixture('server.pem'), key: fixture('server-key.pem') }
    await using cluster = await startEtcd({ tls })
    const [member] = cluster.members
    const hosts = [member?.url ?? '']
    const files = new URLSearchParams({
      ca: tls.ca,
      cert: fixture('client.pem'),
      key: fixture('client-key.pem'),
    })
    const url = `etcds://127.0.0.1:${member?.port}`
    await using locker = await openLocker(`${url}?${files}`, { require: ['fenced', 'cluster'] })
    const lease = await locker.acquire('x')
    expect(await lease.release()).toBe('released')
    const ca = readFileSync(tls.ca)
    for (const refused of [{ hosts, tls: { ca } }, { hosts }])
      await expect(openEtcd(refused)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    await expect(openLocker(`etcd://127.0.0.1?ca=${tls.ca}`)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
  })

  describe('at a wrong address it says what to do', () => {
    const stack = new AsyncDisposableStack()
    afterAll(() => stack.disposeAsync())
    const listening = async (server: Server) => {
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
      stack.defer(() => void server.close())
      return (server.address() as AddressInfo).port
    }
    const portOf = async (options?: ServerOptions): Promise<number> => {
      const cluster = stack.use(await startEtcd(options))
      return cluster.members[0]?.port ?? 0
    }
    const tls = { ca: fixture('ca.pem'), cert: fixture('server.pem'), key: fixture('server-key.pem') }
    const plain = () => portOf()
    const secure = () => portOf({ tls })
    const redis = async (): Promise<number> => stack.use(await startRedis()).port
    const web = () => listening(createWebServer((_request, response) => response.end('hello')))
    const web2 = () => listening(createServer((_request, response) => response.end('hello')))
    const silent = () => listening(createTcpServer(() => {}))
    const ca = `?ca=${fixture('ca.pem')}`

    type Row = readonly [what: string, scheme: string, start: () => Promise<number>, options: string, RegExp]
    const rows: readonly Row[] = [
      ['nothing listens', 'etcd', async () => 1, '', /nothing listens at .*Start etcd\. Check host and port/],
      ['a web server', 'etcd', web, '', /does not speak HTTP\/2.*Check host and port/],
      [
        'a web server with HTTP/2',
        'etcd',
        web2,
        '',
        /HTTP status 200, and not with gRPC.*Check host and port/,
      ],
      ['Redis', 'etcd', redis, '', /does not speak HTTP\/2.*Check host and port/],
      ['Redis, with TLS', 'etcds', redis, '', /does not begin TLS.*write etcd:\/\/.*Check host and port/],
      ['etcd without TLS', 'etcds', plain, '', /does not begin TLS.*write etcd:\/\//],
      ['etcd with TLS', 'etcd', secure, '', /does not speak HTTP\/2.*write etcds:\/\//],
      ['an unknown authority', 'etcds', secure, '', /certificate that is not accepted.*`ca`/],
      ['a certificate is required', 'etcds', secure, ca, /require a certificate.*`cert` and `key`/],
      ['a stopped member', 'etcd', silent, '', /says nothing: it is stopped/],
    ]
    test.each(rows)('%s', async (_, scheme, start, options, message) => {
      const port = await start()
      await expect(openLocker(`${scheme}://127.0.0.1:${port}${options}`)).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        outcome: 'not-applied',
        message: expect.stringMatching(message),
      })
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
