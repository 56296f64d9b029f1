/** Requests of the first contact, and options of a URL that go with each request. This process plays the server. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openBackend } from '../../../open.ts'
import { call } from '../../../testing/conformance/requests.ts'

let stack: AsyncDisposableStack
beforeEach(() => {
  stack = new AsyncDisposableStack()
})
afterEach(() => stack.disposeAsync())

interface Asked {
  readonly path: string
  readonly query: URLSearchParams
  readonly body: string
}

/** `minimum`: what it says of sessions that are shorter than 10 s, or nothing, and it takes them. */
async function startServer(minimum?: string) {
  const asked: Asked[] = []
  const server = createServer(async (request, response) => {
    const { pathname: path, searchParams: query } = new URL(request.url ?? '', 'http://x')
    const body = await text(request)
    asked.push({ path, query, body })
    if (path === '/v1/status/leader') return void response.end('"127.0.0.1:8300"')
    if (path.startsWith('/v1/kv/')) return void response.writeHead(404, { 'x-consul-index': '1' }).end()
    if (path === '/v1/txn') return void response.end('{"Results":[],"Errors":null}')
    if (path !== '/v1/session/create') return void response.end('true')
    const isShort = (JSON.parse(body) as { TTL: string }).TTL === '1000ms'
    if (isShort && minimum !== undefined) return void response.writeHead(400).end(minimum)
    response.end(JSON.stringify({ ID: `session-${asked.length}` }))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  stack.defer(() => {
    server.close()
    server.closeAllConnections()
  })
  return { asked, port: (server.address() as AddressInfo).port }
}

test.each([
  ['an answer without a limit: Consul’s default', 'Invalid Session TTL', 10_000],
  ['hours, minutes and seconds', 'Invalid Session TTL 1s, must be between [1h2m3s=24h0m0s]', 3_723_000],
  ['seconds alone', 'Invalid Session TTL 1s, must be between [10s=24h0m0s]', 10_000],
  ['a part of a second', 'Invalid Session TTL 1s, must be between [2.5s=24h0m0s]', 2_500],
  ['no refusal: nobody needs less', undefined, 1_000],
])('the shortest TTL: %s', async (_what, minimum, min) => {
  const { port } = await startServer(minimum)
  await using backend = await openBackend(`consul://127.0.0.1:${port}?issuer=shop`)
  expect(backend.info.ttlMs).toEqual({ min, max: 86_400_000, step: 1 })
})

test('another refusal of the first session is not taken for a limit', async () => {
  const { port } = await startServer('Missing node registration')
  const opened = openBackend(`consul://127.0.0.1:${port}?issuer=shop`)
  await expect(opened).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
})

test('datacenter, namespace and partition of a URL accompany each request, and its checks each session', async () => {
  const { asked, port } = await startServer()
  const query = 'issuer=shop&dc=dc2&checks=a,b&ns=team&partition=west'
  await using backend = await openBackend(`consul://127.0.0.1:${port}?${query}`)
  await backend.openSession({ id: 'x'.repeat(44), ttlMs: 30_000, holder: 'tester' }, call())
  // This request is about the server alone, so it has no such options.
  const others = asked.filter(({ path }) => path !== '/v1/status/leader')
  expect(new Set(others.map(({ path }) => path.split('/')[2]))).toEqual(new Set(['session', 'kv', 'txn']))
  for (const each of others)
    expect(Object.fromEntries(each.query)).toMatchObject({ dc: 'dc2', ns: 'team', partition: 'west' })
  const made = asked.filter(({ path }) => path === '/v1/session/create').map(({ body }) => JSON.parse(body))
  expect(made.at(-1)).toMatchObject({ TTL: '30000ms', Checks: ['a', 'b'], NodeChecks: ['a', 'b'] })
})
