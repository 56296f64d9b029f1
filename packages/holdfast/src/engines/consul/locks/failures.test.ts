/** What ends sessions, elections while many wait, and lock-delays that outlive a leader. On three servers. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { startProxy } from 'holdfast-lab/faults'
import { type Server, waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { limitedCall, openSession, Rig } from '../../../../test/consul/rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { type Clock, systemClock } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'
import { createLocker } from '../../../locker/locker.ts'
import type { AcquireRequest, BackendSession, Grant } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'

type Session = BackendSession<'fenced'>

async function take(session: Session, asked: AcquireRequest): Promise<Grant<'fenced'>> {
  const result = await session.tryAcquire(asked, call())
  if (result.kind !== 'granted') throw new Error(result.kind)
  return result.grant
}

type Fate = 'answer' | 'answer is lost' | 'no leader' | Promise<void>

/** A relay in front of a server. `fateOf` decides each request: with `no leader` the server does not see it; a promise delays its answer. */
async function startRelay(server: string, fateOf: (path: string, body: string) => Fate) {
  const relay = createServer(async (incoming, answer) => {
    const { url = '', method = '' } = incoming
    const body = await text(incoming)
    const fate = fateOf(url, body)
    if (fate === 'no leader') return void answer.writeHead(500).end('No cluster leader')
    const response = await fetch(`${server}${url}`, { method, ...(method === 'PUT' && { body }) })
    const found = await response.text()
    if (fate === 'answer is lost') return
    await fate
    answer.writeHead(response.status, { 'x-consul-index': response.headers.get('x-consul-index') ?? '' })
    answer.end(found)
  })
  await new Promise<void>((resolve) => relay.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(relay.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      relay.closeAllConnections()
      relay.close()
    },
  }
}

describe.runIf(wanted('consul'))('failures', () => {
  let rig: Rig
  beforeAll(async () => {
    rig = await Rig.start({ members: 3 })
  })
  afterAll(() => rig?.[Symbol.asyncDispose]())
  const down = new Set<Server>()
  afterEach(async () => {
    await Promise.all([...down].map((member) => member.restart()))
    down.clear()
    await rig.cluster.leader()
    await rig.clear()
  })
  const kill = async (...members: Server[]) => {
    for (const member of members) down.add(member)
    await Promise.all(members.map((member) => member.kill()))
  }

  test('T87 G11 while there is no leader, acquiring and waiting fail with typed errors or wait, without a hot loop', async () => {
    const backend = await rig.backend()
    const [holder, waiter] = [
      createLocker(await rig.backend(), { ttlMs: 30_000 }),
      createLocker(backend, { ttlMs: 30_000, waitMs: 120_000 }),
    ]
    const held = await holder.acquire('x')
    const waiting = waiter.acquire('x')
    await waitFor('one waits', async () => (await backend.inspect('x', call()))?.waiters.length === 1 || null)
    const [one, two] = rig.cluster.members as [Server, Server]
    await kill(one, two)
    const before = backend.statistics.sent
    const acquired = await waiter.acquire('y', { waitMs: 3_000 }).catch((error: unknown) => error)
    expect(isHoldfastError(acquired), `${acquired}`).toBe(true)
    // Some tries of the acquire, and polls after pauses that grow.
    expect(backend.statistics.sent - before).toBeLessThan(100)
    await Promise.all([one.restart(), two.restart()])
    down.clear()
    await held.release()
    const taken = await waiting
    expect(taken.state).toBe('held')
    await Promise.all([holder.close(), waiter.close()])
  })

  test('a session outlives the server on which it was made (Consul #20424)', async () => {
    const [member] = rig.cluster.members as readonly [Server]
    const made = await rig.backend({ hosts: [member.url] })
    const session = await openSession(made, 4_000)
    const held = await take(session, request('x'))
    const heir = await (await rig.backend({ hosts: rig.hosts.slice(1) })).attachSession(
      session.handle,
      call(),
    )
    await kill(member)
    // The others notice after some seconds. With the check that Consul takes by default, the session would end then.
    await waitFor('its node is said to have failed', async () => {
      await heir?.keepAlive({ held: [held], waiting: [] }, limitedCall(5_000)).catch(() => null)
      const checks = await rig.operator
        .ask<{ Name: string; Status: string }[]>('health/state/critical')
        .catch(() => [])
      return checks.length > 0 || null
    })
    expect((await heir?.keepAlive({ held: [held], waiting: [] }, call()))?.kind).toBe('alive')
    const others = await rig.backend({ hosts: rig.hosts.slice(1) })
    await waitFor('the diagnosis says so', async () => {
      const found = await others.diagnose(call())
      return found.some(({ code }) => code === 'HOLDFAST_CONSUL_UNHEALTHY')
    })
    await heir?.close(call())
  })

  test('G11 a node that is taken out of the catalog takes its sessions with it: they are told as gone', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    const held = await take(session, request('x'))
    const id = (await rig.operator.keys()).find(({ Key }) => Key.endsWith(`/c/${held.attempt}`))?.Session
    const [{ Node }] = await rig.operator.ask<[{ Node: string }]>(`session/info/${id}`)
    await rig.operator.put('catalog/deregister', { Node })
    // Its agent would find out, and come back, after a minute.
    await rig.operator.put('catalog/register', { Node, Address: '127.0.0.1' })
    expect((await session.keepAlive({ held: [held], waiting: [] }, call())).kind).toBe('gone')
    const next = await waitFor('another session', () => openSession(backend).catch(() => null))
    await take(next, request('x'))
    await next.close(call())
  })

  test('a check that fails ends the sessions that were made with it, and no others', async () => {
    const [member] = rig.cluster.members as readonly [Server]
    const check = { Name: 'holdfast', ID: 'holdfast', TTL: '1h', Status: 'passing' }
    await rig.operator.tell('agent/check/register', member.url, check)
    const plain = await openSession(await rig.backend({ hosts: [member.url] }))
    const backend = await rig.backend({ hosts: [member.url], checks: ['holdfast'] })
    const checked = await waitFor('the check is known', () => openSession(backend).catch(() => null))
    await Promise.all([take(plain, request('x')), take(checked, request('y'))])
    await rig.operator.tell('agent/check/fail/holdfast', member.url)
    await waitFor(
      'it ends',
      async () => (await checked.keepAlive({ held: [], waiting: [] }, call())).kind === 'gone' || null,
    )
    expect((await plain.keepAlive({ held: [], waiting: [] }, call())).kind).toBe('alive')
    await plain.close(call())
    await rig.operator.tell('agent/check/deregister/holdfast', member.url)
  })

  test('T14 G6 an abandon whose answer is lost is asked again, and nothing is left', async () => {
    const [member] = rig.cluster.members as readonly [Server]
    await using proxy = await startProxy(member)
    const hosts = [`http://${proxy.host}:${proxy.port}`, ...rig.hosts.slice(1)]
    const session = await openSession(await rig.backend({ hosts }))
    const asked = request('x')
    await take(session, asked)
    proxy.drop('down')
    await session.abandon(asked, call())
    const observer = await rig.backend()
    expect(await observer.inspect('x', call())).toBe(null)
    proxy.heal()
    expect((await session.tryAcquire(asked, call()).catch(() => ({ kind: 'refused' }))).kind).not.toBe(
      'granted',
    )
    await session.close(call())
  })

  test.each(['marked', 'unmarked'] as const)(
    'T15 T73 G6 a join that arrives after its attempt was abandoned leaves nothing (%s)',
    async (mark) => {
      const [member] = rig.cluster.members as readonly [Server]
      await using proxy = await startProxy(member)
      const hosts = [`http://${proxy.host}:${proxy.port}`, ...rig.hosts.slice(1)]
      const session = await openSession(await rig.backend({ hosts }))
      const asked = request('x')
      const late = proxy.record()
      proxy.drop('down')
      const given = new Cancellation()
      const joined = session.tryAcquire(asked, given).catch((error: unknown) => error)
      const left = async () => (await rig.operator.keys()).filter(({ Key }) => Key.endsWith(asked.attempt))
      const isThere = async () => (await left()).some(({ Key }) => Key.includes('/c/')) || null
      await waitFor('it lands', isThere)
      given.cancel(new Error('given up'))
      expect(await joined).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
      late.end()
      // At another member, after a silence.
      await session.abandon(asked, call())
      const [found, ...others] = await left()
      expect([found?.Key, others]).toEqual([expect.stringContaining('/a/'), []])
      if (mark === 'unmarked') await rig.operator.deleteKey(found?.Key ?? '')
      await late.replay()
      const kept = await session.keepAlive({ held: [], waiting: [] }, call())
      expect(kept).toMatchObject({
        kind: 'alive',
        unlisted: mark === 'marked' ? [] : [{ name: 'x', attempt: asked.attempt }],
      })
      if (mark === 'unmarked') await session.abandon(asked, call())
      expect(await isThere()).toBe(null)
      await session.close(call())
    },
  )

  test('T13 C129 a release whose answer is lost, and whose copy finds nothing, is unknown and keeps the name closed', async () => {
    const asked: string[] = []
    let isLost = false
    await using relay = await startRelay(rig.hosts[0] ?? '', (path, body) => {
      asked.push(path)
      const isFirst = !isLost && body.includes('/kept/')
      isLost ||= isFirst
      return isFirst ? 'answer is lost' : 'answer'
    })
    const session = await openSession(await rig.backend({ hosts: [relay.url] }))
    const other = await openSession(await rig.backend())
    const held = await take(session, request('x'))
    asked.length = 0
    const released = session.release(held, { keepForMs: 30_000 }, call())
    await expect(released).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    await session.keepAlive({ held: [], waiting: [] }, call())
    expect(asked.filter((path) => path.includes('/session/destroy/'))).toEqual([])
    expect((await other.tryAcquire(request('x'), call())).kind).toBe('busy')
    await Promise.all([session.close(call()), other.close(call())])
  })

  test('T13 a release that was applied, and that nobody was told of, keeps the name closed for its time and not for twice', async () => {
    const keepForMs = 600_000
    const ended: (() => void)[] = []
    const setTimer: Clock['setTimer'] = (delayMs, fire, options) => {
      if (delayMs !== keepForMs) return systemClock.setTimer(delayMs, fire, options)
      ended.push(fire)
      return { cancel() {} }
    }
    await using relay = await startRelay(rig.hosts[0] ?? '', (_path, body) =>
      body.includes('/kept/') ? 'answer is lost' : 'answer',
    )
    const backend = await rig.backend({ hosts: [relay.url], clock: { ...systemClock, setTimer } })
    const [session, other] = [await openSession(backend), await openSession(await rig.backend())]
    const held = await take(session, request('x'))
    const given = new Cancellation()
    const released = session.release(held, { keepForMs }, given).catch((error: unknown) => error)
    const isKept = async () => (await rig.operator.keys()).some(({ Key }) => Key.includes('/kept/')) || null
    await waitFor('it is applied', isKept)
    given.cancel(new Error('given up'))
    expect(await released).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    // Core asks again.
    expect(await session.release(held, { keepForMs }, limitedCall(1_000)).catch(() => 'unknown')).toBe(
      'unknown',
    )
    expect((await other.tryAcquire(request('x'), call())).kind).toBe('busy')
    for (const fire of ended) fire()
    const next = async () => (await other.tryAcquire(request('x'), call())).kind === 'granted'
    await waitFor('the name is open', next)
    await Promise.all([session.close(call()), other.close(call())])
  })

  test('T13 releases that left together, and whose answer is lost, are unknown although each is asked alone in the end', async () => {
    let together = 0
    await using relay = await startRelay(rig.hosts[0] ?? '', (_path, body) => {
      const areBoth = ['"delete"', '/n/x/c/', '/n/y/c/'].every((part) => body.includes(part))
      return areBoth && together++ === 0 ? 'answer is lost' : 'answer'
    })
    const session = await openSession(await rig.backend({ hosts: [relay.url] }))
    const held = await Promise.all(['x', 'y'].map((name) => take(session, request(name))))
    const release = () => held.map((grant) => session.release(grant, { keepForMs: 0 }, call()))
    for (const released of await Promise.allSettled(release()))
      expect(released).toMatchObject({
        status: 'rejected',
        reason: { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' },
      })
    expect(together).toBe(2)
    expect(await Promise.all(release())).toEqual(['not-held', 'not-held'])
    await session.close(call())
  })

  test('G6 a release that was not applied leaves no session behind, however often it is asked', async () => {
    await using relay = await startRelay(rig.hosts[0] ?? '', (_path, body) =>
      body.includes('/kept/') ? 'no leader' : 'answer',
    )
    const session = await openSession(await rig.backend({ hosts: [relay.url] }))
    const held = await take(session, request('x'))
    for (let times = 0; times < 3; times++)
      await expect(session.release(held, { keepForMs: 600_000 }, call())).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        outcome: 'not-applied',
      })
    await waitFor('only its own is left', async () => (await rig.operator.sessions()).length === 1)
    expect(await session.release(held, { keepForMs: 0 }, call())).toBe('released')
    await session.close(call())
  })

  test('T84 G2 a join whose answer is slower than the confirm of its claim is not granted once more, with another token', async () => {
    const slow = Promise.withResolvers<void>()
    let isSlow = false
    await using relay = await startRelay(rig.hosts[0] ?? '', (_path, body) =>
      isSlow && body.includes('check-index') ? slow.promise : 'answer',
    )
    const backend = await rig.backend({ hosts: [relay.url] })
    const other = await openSession(await rig.backend())
    const held = await take(other, request('x'))
    const id = systemRandom.id() + systemRandom.id()
    const { claims } = await backend.openClaims({ id, ttlMs: 30_000, holder: 'ada' }, call())
    const asked = request('x')
    expect((await claims.join(asked, true, call())).kind).toBe('created')
    const own = (await rig.operator.keys()).find(({ Key }) => Key.endsWith(`/c/${asked.attempt}`))?.Key ?? ''
    await rig.operator.deleteKey(own)
    await other.release(held, { keepForMs: 0 }, call())
    isSlow = true
    const again = claims.join(asked, true, call())
    const claim = await waitFor('it is made anew', async () => {
      return (await claims.look(asked, call())).claim(asked.attempt) ?? null
    })
    isSlow = false
    const view = (await claims.look(asked, call())).queue(claim, 1)
    expect(await claims.confirm(asked, claim, view, call())).toHaveProperty('token')
    slow.resolve()
    expect((await again).kind).not.toBe('granted')
    await Promise.all([claims.close(call()), other.close(call())])
  })

  test('T23 a lock-delay goes on when the leader is killed in the middle of it', async () => {
    const delayMs = 5_000
    const backend = await rig.backend()
    const dying = await openSession(backend, 1_000, { lockDelayMs: delayMs })
    const successor = await openSession(backend)
    const held = await take(dying, request('x'))
    // Both sessions end at once, so it is known when the delay begins.
    const keys = await rig.operator.keys()
    const ids = ['c', 'delay'].map(
      (part) => keys.find(({ Key }) => Key.endsWith(`/${part}/${held.attempt}`))?.Session,
    )
    for (const id of ids) await rig.operator.put(`session/destroy/${id}`)
    const beganMs = performance.now()
    await kill(await rig.cluster.leader())
    await rig.cluster.leader()
    let opened = false
    while (!opened) {
      const result = await successor.tryAcquire(request('x'), limitedCall(3_000)).catch(() => null)
      opened = result?.kind === 'granted'
      if (!opened) await sleep(100)
    }
    expect(performance.now() - beganMs).toBeGreaterThan(delayMs - 50)
    await successor.close(call())
  })
})
