/** T88: which renewals count. The members are played by servers in this process, and time by a fake clock. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { instantOf } from '../../../base/clock.ts'
import { systemRandom } from '../../../base/ids.ts'
import { neverCancelled as call } from '../../../kit/backend-kit.ts'
import { createFakeClock, type FakeClock } from '../../../testing/fake-clock.ts'
import { ConsulClient, FLAGS } from '../client/index.ts'
import { Connection } from './connection.ts'
import { ConsulClaims } from './store.ts'

const TTL_MS = 10_000
const id = '12345678-aaaa-bbbb-cccc-0123456789ab'
/** The second session, of one with a lock-delay. */
const delay = '87654321-aaaa-bbbb-cccc-0123456789ab'

describe('a keep-alive', () => {
  let stack: AsyncDisposableStack
  let clock: FakeClock
  beforeEach(() => {
    stack = new AsyncDisposableStack()
    clock = createFakeClock()
  })
  afterEach(() => stack.disposeAsync())

  /** Members that say yes to whatever they are asked, as long as they serve. */
  async function cluster() {
    const asked: string[] = []
    const state = { serving: 0, isKnown: true, isDelayKnown: true, hasRecord: true }
    const hosts: string[] = []
    for (const index of [0, 1]) {
      const server = createServer((request, response) => {
        if (state.serving !== index) return void response.writeHead(500).end('No cluster leader')
        const path = request.url ?? ''
        if (path.startsWith('/v1/status')) return void response.end('"127.0.0.1:8300"')
        const isRenewal = path.startsWith('/v1/session/renew')
        // Each takes a while.
        clock.block(10)
        const isVerified = path.includes('?consistent')
        const isSecond = path.endsWith(delay)
        const renewal = isSecond ? 'renew second' : 'renew'
        asked.push(`${isRenewal ? renewal : isVerified ? 'read' : 'unverified read'} ${index}`)
        if (isRenewal && !(isSecond ? state.isDelayKnown : state.isKnown))
          return void response.writeHead(404).end('not found')
        if (isRenewal) return void response.end(JSON.stringify([{ ID: isSecond ? delay : id }]))
        const entry = { Key: key, Value: null, Flags: FLAGS, Session: id, CreateIndex: 5, ModifyIndex: 5 }
        response.end(JSON.stringify({ Results: state.hasRecord ? [{ KV: entry }] : [], Errors: null }))
      })
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
      stack.defer(() => {
        server.close()
        server.closeAllConnections()
      })
      hosts.push(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    }
    const client = new ConsulClient('consul', { hosts }, clock)
    const connection = new Connection(client, 'default', clock, systemRandom)
    stack.defer(() => connection.close())
    const key = connection.keys.session('x')
    const session = (isOpened: boolean, also: { readonly delay?: string } = {}) => {
      const record = { id: 'x', holder: 'ada', ttlMs: TTL_MS, ...also }
      return new ConsulClaims(connection, { id, key, record, provenAt: isOpened ? instantOf(clock) : null })
    }
    const prolong = async (claims: ConsulClaims) => {
      const sentMs = clock.monotonicMs()
      asked.length = 0
      const prolonged = await claims.prolong([], call)
      return { asked: [...asked], ageMs: prolonged === null ? null : sentMs - prolonged.since.monotonicMs }
    }
    return { state, session, prolong }
  }

  test('of a session that was opened here is one renewal and one read, counted from before both', async () => {
    const { session, prolong } = await cluster()
    const claims = session(true)
    for (let beat = 0; beat < 5; beat++) {
      await clock.advance(TTL_MS / 3)
      expect(await prolong(claims)).toEqual({ asked: ['renew 0', 'read 0'], ageMs: 0 })
    }
  })

  test('of an attached session takes two rounds the first time, and counts from the first', async () => {
    const { session, prolong } = await cluster()
    const claims = session(false)
    const rounds = ['renew 0', 'read 0', 'renew 0', 'read 0']
    expect(await prolong(claims)).toEqual({ asked: rounds, ageMs: 0 })
    await clock.advance(TTL_MS / 3)
    expect(await prolong(claims)).toEqual({ asked: rounds.slice(2), ageMs: 0 })
  })

  test('at another member counts while it is certain that the session lived a TTL before; then it takes two rounds there', async () => {
    const { state, session, prolong } = await cluster()
    const claims = session(true)
    await clock.advance(TTL_MS / 3)
    await prolong(claims)
    state.serving = 1
    await clock.advance(TTL_MS / 3)
    // Certain is the creation, two thirds of a TTL ago.
    expect(await prolong(claims)).toEqual({ asked: ['renew 1', 'read 1'], ageMs: 0 })
    state.serving = 0
    await clock.advance(TTL_MS)
    // The read at the other member proves nothing of this one.
    expect(await prolong(claims)).toEqual({ asked: ['renew 0', 'read 0', 'renew 0', 'read 0'], ageMs: 0 })
  })

  test('G3 what one member has verified proves nothing at another one', async () => {
    const { state, session, prolong } = await cluster()
    const claims = session(true)
    await clock.advance(TTL_MS / 2)
    await prolong(claims)
    state.serving = 1
    // The creation is more than a TTL ago, the last keep-alive less.
    await clock.advance(0.7 * TTL_MS)
    expect((await prolong(claims)).asked).toEqual(['renew 1', 'read 1', 'renew 1', 'read 1'])
  })

  test('after a pause of more than a TTL takes two rounds', async () => {
    const { session, prolong } = await cluster()
    const claims = session(true)
    await clock.advance(TTL_MS + 1)
    expect((await prolong(claims)).asked).toHaveLength(4)
  })

  test('that finds no session says so; a leader that does not know the session yet says nothing', async () => {
    const { state, session, prolong } = await cluster()
    const claims = session(true)
    state.isKnown = false
    await expect(prolong(claims)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    state.hasRecord = false
    expect((await prolong(claims)).ageMs).toBe(null)
    state.isKnown = true
    expect((await prolong(claims)).ageMs).toBe(null)
  })

  test('T23 of a session with a lock-delay renews the second one first, and does not count without it', async () => {
    const { state, session, prolong } = await cluster()
    const claims = session(true, { delay })
    expect(await prolong(claims)).toEqual({ asked: ['renew second 0', 'renew 0', 'read 0'], ageMs: 0 })
    state.isDelayKnown = false
    await expect(prolong(claims)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
  })
})
