/** The client against servers that refuse, are slow or go away. Their side is played by servers in this process. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { waitFor } from 'holdfast-lab/servers'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Cancellation } from '../../../base/cancellation.ts'
import { neverCancelled as call } from '../../../kit/backend-kit.ts'
import { createFakeClock, type FakeClock } from '../../../testing/fake-clock.ts'
import * as consul from './index.ts'

type Serve = (request: IncomingMessage, response: ServerResponse) => void

const again = { onAgain: () => {} }
const good = (response: ServerResponse) => response.end('{"Results":[],"Errors":null}')
const refuse = (response: ServerResponse, status: number, text: string) =>
  response.writeHead(status).end(text)
const write = [consul.set('a', 'x')]

describe('the client', { timeout: 60_000 }, () => {
  let stack: AsyncDisposableStack
  let clock: FakeClock
  beforeEach(() => {
    stack = new AsyncDisposableStack()
    clock = createFakeClock()
  })
  afterEach(() => stack.disposeAsync())

  /** A member, with the requests that have come to it. */
  const member = async (serve: Serve) => {
    const asked: string[] = []
    const server: Server = createServer((request, response) => {
      if (request.url?.startsWith('/v1/status/leader')) return void response.end('"127.0.0.1:8300"')
      asked.push(request.url ?? '')
      serve(request, response)
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    stack.defer(() => {
      server.close()
      server.closeAllConnections()
    })
    return { asked, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server }
  }
  const connected = (members: readonly { readonly url: string }[], options: object = {}) => {
    const client = new consul.ConsulClient(
      'consul',
      { hosts: members.map(({ url }) => url), ...options },
      clock,
    )
    stack.defer(() => client.close())
    return client
  }
  const outcome = (asked: Promise<unknown>): Promise<unknown> =>
    asked.then(
      () => 'answered',
      (error: { outcome?: string; code?: string }) => error.outcome ?? error.code ?? error,
    )

  test.each([
    ['no leader', 500, 'No cluster leader'],
    ['too many connections', 429, 'Your IP is issuing too many concurrent connections'],
  ])(
    'T101 requests that one member refuses together all come to the next one: %s',
    async (_what, status, text) => {
      const refusing = await member((_request, response) => refuse(response, status, text))
      const [serving, third] = [await member((_r, response) => good(response)), await member(() => {})]
      const client = connected([refusing, serving, third])
      const all = Array.from({ length: 5 }, () => outcome(client.transact(write, call)))
      expect(await Promise.all(all)).toEqual(Array.from({ length: 5 }, () => 'answered'))
      expect([refusing.asked.length, serving.asked.length, third.asked.length]).toEqual([5, 5, 0])
    },
  )

  test.each([
    ['the leader was lost while it was committed', 500, 'leadership lost while committing log', 'unknown'],
    ['a connection between servers was lost', 500, 'rpc error making call: EOF', 'unknown'],
    ['a proxy gives up', 504, 'gateway time-out', 'unknown'],
    ['too large', 413, 'Request body too large', 'not-applied'],
    ['no rights', 403, 'Permission denied', 'UNSUPPORTED'],
  ])('a write is sent once, and its outcome is told: %s', async (_what, status, text, told) => {
    const failing = await member((_request, response) => refuse(response, status, text))
    const other = await member((_request, response) => good(response))
    expect(await outcome(connected([failing, other]).transact(write, call))).toBe(told)
    expect([failing.asked.length, other.asked.length]).toEqual([1, 0])
  })

  test('T98 what may be applied twice is asked again at another member after a silence', async () => {
    const silent = await member(() => {})
    const serving = await member((_request, response) => good(response))
    const client = connected([silent, serving])
    const settled = outcome(client.transact(write, call, again))
    await waitFor('it is asked', async () => silent.asked.length === 1 || null)
    await clock.advance(1_500)
    expect(await settled).toBe('answered')
    expect(serving.asked).toHaveLength(1)
  })

  test('T98 what no member can pass on to its leader is asked again until there is another one', async () => {
    let hasLeader = false
    const text = 'rpc error getting client: failed to get conn: dial tcp: connection refused'
    const serve: Serve = (_request, response) =>
      void (hasLeader ? good(response) : refuse(response, 500, text))
    const members = [await member(serve), await member(serve)]
    const settled = outcome(connected(members).transact(write, call, again))
    await waitFor('both are asked', async () => members.every(({ asked }) => asked.length === 1) || null)
    hasLeader = true
    await waitFor('it is asked again', async () => {
      await clock.advance(200)
      return members.some(({ asked }) => asked.length === 2) || null
    })
    expect(await settled).toBe('answered')
  })

  test('T96 a request without a caller’s limit, and a poll, settle within limits of their own', async () => {
    const silent = await member(() => {})
    const client = connected([silent])
    const settled = [
      outcome(client.transact(write, call)),
      outcome(consul.pollTree(client, 'a/', 5n, call.signal).catch(() => Promise.reject({ code: 'failed' }))),
    ]
    await waitFor('both are asked', async () => silent.asked.length === 2 || null)
    // A poll that is not answered in time says that the member is not there.
    await clock.advance(13_000)
    expect(await settled[1]).toBe('failed')
    await clock.advance(9_000)
    expect(await settled[0]).toBe('unknown')
    expect(client.inFlight).toBe(0)
  })

  test('a request that is given up is unknown, and one that has never had a connection was not applied', async () => {
    const silent = await member(() => {})
    const client = connected([silent])
    const given = new Cancellation()
    const all = Array.from({ length: 9 }, () => outcome(client.transact(write, given)))
    await waitFor('eight are asked', async () => silent.asked.length === 8 || null)
    given.cancel(new Error('given up'))
    // The call says so of all, because it does not look at connections.
    expect(new Set(await Promise.all(all))).toEqual(new Set(['unknown']))
    const refused = connected([{ url: 'http://127.0.0.1:1' }])
    expect(await outcome(refused.transact(write, call))).toBe('not-applied')
  })

  test('T89 many requests at once share eight connections, and polls have nine of their own', async () => {
    const waiting: ServerResponse[] = []
    const busy = await member((_request, response) => void waiting.push(response))
    let connections = 0
    busy.server.on('connection', () => connections++)
    const client = connected([busy])
    const requests = Array.from({ length: 50 }, () => outcome(client.transact(write, call)))
    const polls = Array.from({ length: 12 }, (_, index) =>
      outcome(consul.pollTree(client, `${index}/`, 5n, call.signal)),
    )
    await waitFor('as many as may are asked', async () => waiting.length === 17 || null)
    for (let answered = 0; answered < 62; ) {
      for (const response of waiting.splice(0)) {
        answered++
        response.setHeader('x-consul-index', '7')
        if (busy.asked[answered - 1]?.startsWith('/v1/kv')) response.end('[]')
        else good(response)
      }
      await new Promise(setImmediate)
    }
    await Promise.all([...requests, ...polls])
    // And the first, which asked for the leader.
    expect(connections).toBeLessThanOrEqual(17)
  })

  test('token, datacenter and what is of Consul Enterprise accompany each request', async () => {
    const seen: unknown[] = []
    const serving = await member(({ url, headers }, response) => {
      seen.push([url, headers['x-consul-token']])
      good(response)
    })
    const client = connected([serving], {
      token: 'secret',
      datacenter: 'dc 2',
      ns: 'team',
      partition: 'west',
    })
    await client.transact(write, call)
    await client.transact([consul.tree('a/')], call, { isConsistent: true })
    expect(seen).toEqual([
      ['/v1/txn?dc=dc+2&ns=team&partition=west', 'secret'],
      ['/v1/txn?consistent&dc=dc+2&ns=team&partition=west', 'secret'],
    ])
  })

  test('T103 a member whose answer is not valid is left: the outcome is unknown, and the next request goes to another one', async () => {
    const broken = await member((_request, response) => void response.end('{"Results":'))
    const serving = await member((_request, response) => good(response))
    const client = connected([broken, serving])
    expect(await outcome(client.transact(write, call))).toBe('unknown')
    expect(await outcome(client.transact(write, call))).toBe('answered')
    expect([broken.asked.length, serving.asked.length]).toEqual([1, 1])
  })

  test('T33 after a member was left its polls end at once, and requests have a while', async () => {
    const silent = await member(() => {})
    const serving = await member((_request, response) => good(response))
    const client = connected([silent, serving])
    const polled = outcome(
      consul.pollTree(client, 'a/', 5n, call.signal).catch(() => Promise.reject({ code: 'ended' })),
    )
    const once = outcome(client.transact(write, call))
    await waitFor('both are asked', async () => silent.asked.length === 2 || null)
    const asked = outcome(client.transact([consul.tree('a/')], call))
    await waitFor('three are asked', async () => silent.asked.length === 3 || null)
    await clock.advance(1_500)
    expect([await polled, await asked]).toEqual(['ended', 'answered'])
    await clock.advance(8_000)
    expect(await once).toBe('unknown')
  })
})
