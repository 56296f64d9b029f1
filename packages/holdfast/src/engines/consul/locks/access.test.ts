/** Certificates, tokens and rights, agents that are no servers, wrong addresses, and the diagnosis. */
import { startConsul, waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { describeAddresses } from '../../../../test/addresses.ts'
import { limitedCall, openSession, Rig } from '../../../../test/consul/rig.ts'
import { defaults } from '../../../base/defaults.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { openBackend, openLocker } from '../../../open.ts'
import type { BackendSession, HolderKey } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { openConsul } from './assemble.ts'
import type { ConsulBackend } from './backend.ts'

describe.runIf(wanted('consul'))('access', () => {
  describeAddresses({
    name: 'consul',
    protocol: 'HTTP as Consul does',
    start: startConsul,
    unseen: ['HOLDFAST_CONSUL_ACL_OFF'],
  })

  test.each([
    ['hosts', { hosts: ['127.0.0.1:8500'] }],
    ['hosts', { hosts: [] }],
    ['token', { hosts: ['http://127.0.0.1:8500'], token: 'a\nb' }],
    ['checks', { hosts: ['http://127.0.0.1:8500'], checks: 'serfHealth' as never }],
    ['consul options', { hosts: ['http://127.0.0.1:8500'], tokens: 'x' } as never],
  ])('%s that cannot be are refused', async (argument, options) => {
    await expect(openConsul(options)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(argument),
    })
  })

  test('the shortest TTL is what the server says when it refuses a shorter one', async () => {
    await using cluster = await startConsul({ settings: { session_ttl_min: '90s' } })
    await using backend = await openConsul({ hosts: cluster.members.map(({ url }) => url) })
    expect(backend.info.ttlMs).toEqual({ min: 90_000, max: 86_400_000, step: 1 })
    expect(backend.info.expirySlackMs(90_000)).toBe(91_000)
    const session = await backend.openSession({ id: 'x'.repeat(44), ttlMs: 1_000, holder: 'tester' }, call())
    expect(session.ttlMs).toBe(90_000)
    await session.close(call())
    const codes = (await backend.diagnose(call())).map(({ code }) => code)
    expect(codes).toContain('HOLDFAST_CONSUL_LONG_TTL')
  })

  test('two clusters have two issuers, and a namespace keeps its own', async () => {
    await using one = await startConsul()
    await using other = await startConsul()
    const issuerOf = async ({ members }: typeof one) => {
      await using backend = await openBackend(`consul://127.0.0.1:${members[0]?.port}`)
      return backend.info.issuer
    }
    const issuers = [await issuerOf(one), await issuerOf(other), await issuerOf(one)]
    expect(issuers[0]).toMatch(/^consul:.{22}\/default$/)
    expect(issuers[1]).not.toBe(issuers[0])
    expect(issuers[2]).toBe(issuers[0])
  })

  test('T56 an agent that is no server passes requests on, also when its server is gone; the diagnosis says what that means', async () => {
    await using rig = await Rig.start({ members: 3 })
    const agent = await rig.cluster.startAgent()
    const backend = await rig.backend({ hosts: [agent.url] })
    const session = await backend.openSession({ id: 'y'.repeat(44), ttlMs: 30_000, holder: 'tester' }, call())
    const held = await session.tryAcquire(request('x'), call())
    expect(held.kind).toBe('granted')
    expect((await backend.diagnose(call())).map(({ code }) => code)).toEqual(
      expect.arrayContaining(['HOLDFAST_CONSUL_AGENT', 'HOLDFAST_CONSUL_ACL_OFF']),
    )
    await session.close(call())
  })

  describe('with tokens', () => {
    const root = '11111111-2222-3333-4444-555555555555'
    let rig: Rig
    let host: string
    const acl = { enabled: true, default_policy: 'deny', tokens: { master: root, agent: root } }
    beforeAll(async () => {
      rig = await Rig.start({ settings: { acl, limits: { http_max_conns_per_client: 40 } }, token: root })
      host = rig.hosts[0] ?? ''
    })
    afterAll(() => rig?.[Symbol.asyncDispose]())

    const headers = { 'x-consul-token': root }
    const put = async (path: string, body: object): Promise<{ ID: string; SecretID: string }> => {
      const init = { method: 'PUT', headers, body: JSON.stringify(body) }
      return JSON.parse(await (await fetch(`${host}/v1/acl/${path}`, init)).text())
    }
    /** A token with these rules. `change` gives it other rules. */
    const tokenOf = async (Name: string, Rules: string) => {
      const { ID } = await put('policy', { Name, Rules })
      const { SecretID } = await put('token', { Policies: [{ Name }] })
      return { SecretID, change: (rules: string) => put(`policy/${ID}`, { ID, Name, Rules: rules }) }
    }
    const tokenWith = async (name: string, rules: string) => (await tokenOf(name, rules)).SecretID
    const sessions = 'session_prefix "" { policy = "write" }'

    test('the rights of the page are enough; for the diagnosis it takes more', async () => {
      const secret = await tokenWith(
        'locks',
        `key_prefix "holdfast/1/shop/" { policy = "write" } ${sessions}`,
      )
      const port = new URL(host).port
      await using locker = await openLocker(`consul://:${secret}@127.0.0.1:${port}?namespace=shop`)
      const lease = await locker.acquire('x')
      await lease.setData('left')
      expect(await lease.release()).toBe('released')
      expect((await locker.list()).map(({ name }) => name)).toEqual(['x'])
      const codes = (await locker.diagnose()).map(({ code }) => code)
      expect(new Set(codes)).toEqual(new Set(['HOLDFAST_CONSUL_UNREADABLE']))
    })

    test('the diagnosis names a small cluster and a low limit of connections, with the rights of the page', async () => {
      const rules = 'agent_prefix "" { policy = "read" } operator = "read" key_prefix "" { policy = "write" }'
      const secret = await tokenWith('diagnosis', `${rules} ${sessions}`)
      for (const token of [root, secret]) {
        const codes = (await (await rig.backend({ token })).diagnose(call())).map(({ code }) => code)
        expect(new Set(codes)).toEqual(
          new Set(['HOLDFAST_CONSUL_FEW_SERVERS', 'HOLDFAST_CONSUL_FEW_CONNECTIONS']),
        )
      }
    })

    test.each([
      [
        'a wrong token',
        async () => '99999999-2222-3333-4444-555555555555',
        /ACL not found.*Correct the token/,
      ],
      ['no token', async () => undefined, /Permission denied.*key_prefix/],
      [
        'no sessions',
        () => tokenWith('keys', 'key_prefix "" { policy = "write" }'),
        /Permission denied.*session_prefix/,
      ],
      ['no keys', () => tokenWith('sessions', sessions), /Permission denied.*key_prefix/],
    ])('%s: it says what is missing', async (_what, token, message) => {
      const secret = await token()
      await expect(rig.backend(secret === undefined ? {} : { token: secret })).rejects.toMatchObject({
        code: 'UNSUPPORTED',
        message: expect.stringMatching(message),
      })
    })

    test('G1 G12 a name that may not be read is never taken for free', async () => {
      const rules = `key_prefix "holdfast/1/blind/" { policy = "write" } key_prefix "holdfast/1/blind/n/y/" { policy = "deny" }`
      const secret = await tokenWith('blind', `${rules} ${sessions}`)
      const blind = await rig.backend({ token: secret, namespace: 'blind', issuer: 'shop' })
      const session = await blind.openSession({ id: 'w'.repeat(44), ttlMs: 60_000, holder: 'blind' }, call())
      await expect(session.tryAcquire(request('y'), call())).rejects.toMatchObject({ code: 'UNSUPPORTED' })
      expect((await session.tryAcquire(request('x'), call())).kind).toBe('granted')
      await session.close(call())
    })

    const denied = { code: 'UNSUPPORTED', message: expect.stringMatching(/Permission denied.*key_prefix/) }
    const openOn = (backend: ConsulBackend) => openSession(backend, 60_000)
    const take = async (session: BackendSession<'fenced'>, name: string) => {
      const result = await session.tryAcquire(request(name), call())
      if (result.kind !== 'granted') throw new Error(result.kind)
      return result.grant
    }

    test('T56 G12 operators are not told that a name is free when they may not read it; reading is all that it takes', async () => {
      const writer = await rig.backend({ token: root, namespace: 'looks', issuer: 'shop' })
      const session = await openOn(writer)
      const grants = [await take(session, 'x'), await take(session, 'y')] as const
      const keys = 'key_prefix "holdfast/1/looks/'
      const all = `${keys}" { policy = "read" }`
      const reader = async (name: string, rules: string) =>
        rig.backend({
          token: await tokenWith(name, `${rules} ${sessions}`),
          namespace: 'looks',
          issuer: 'shop',
        })
      const looker = await reader('looks', `${all} ${keys}n/y/" { policy = "deny" }`)
      const [seen, hidden] = grants.map(({ attempt, token }, index) => {
        return { name: index === 0 ? 'x' : 'y', id: publicIdOf(attempt), token }
      }) as [HolderKey, HolderKey]
      expect((await looker.inspect('x', call()))?.holders).toHaveLength(1)
      expect(await looker.check(seen, call())).toBe(true)
      expect(await looker.inspect('free', call())).toBe(null)
      await expect(looker.inspect('y', call())).rejects.toMatchObject(denied)
      await expect(looker.check(hidden, call())).rejects.toMatchObject(denied)
      // The page says so: Consul does not tell of names that it leaves out.
      expect((await looker.list('', { limit: 10 }, call())).items.map(({ name }) => name)).toEqual(['x'])
      const blind = await reader('sees-nothing', '')
      await expect(blind.list('', { limit: 10 }, call())).rejects.toMatchObject(denied)
      await session.close(call())
    })

    test('T56 a session whose token loses its rights is not said to be gone, nor its leases to be lost', async () => {
      const keys = 'key_prefix "holdfast/1/rights/'
      const all = `${keys}" { policy = "write" } ${sessions}`
      const token = await tokenOf('rights', all)
      const options = { token: token.SecretID, namespace: 'rights', issuer: 'shop' }
      const session = await openOn(await rig.backend(options))
      const held = await take(session, 'x')
      const keepAlive = () => session.keepAlive({ held: [held], waiting: [] }, call())
      for (const hidden of ['n/x/', 's/']) {
        await token.change(`${all} ${keys}${hidden}" { policy = "deny" }`)
        await expect(keepAlive()).rejects.toMatchObject(denied)
      }
      const other = await rig.backend(options)
      await expect(other.attachSession(session.handle, call())).rejects.toMatchObject(denied)
      await token.change(all)
      expect(await keepAlive()).toMatchObject({ kind: 'alive', lost: [] })
      await session.close(call())
    })
  })

  test('the diagnosis names a server that is down, and one that knows no leader', async () => {
    await using rig = await Rig.start({ members: 3 })
    const backend = await rig.backend()
    const leader = await rig.cluster.leader()
    const [one, two] = rig.cluster.members.filter((member) => member !== leader)
    await Promise.all([one?.kill(), two?.kill()])
    // Within the limit that a locker sets by default.
    const codes = await waitFor('no leader', async () => {
      const found = (await backend.diagnose(limitedCall(defaults.callTimeoutMs))).map(({ code }) => code)
      return found.includes('HOLDFAST_CONSUL_NO_LEADER') && found
    })
    expect(codes).toContain('HOLDFAST_CONSUL_MEMBER_DOWN')
  })
})
