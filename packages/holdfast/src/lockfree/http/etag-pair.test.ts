import assert from 'node:assert/strict'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, onTestFinished, test } from 'vitest'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { optimisticUpdate } from '../optimistic-update.ts'
import { type EtagPairOptions, etagPair } from './etag-pair.ts'

type Handler = (request: IncomingMessage, response: ServerResponse) => Promise<void> | void

async function serve(handle: Handler): Promise<string> {
  const server = createServer((request, response) => void handle(request, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/stock/42?secret=1`
}

/** A resource with a version that counts up. */
function counter() {
  const state = { units: 10, version: 1, writes: 0 }
  const handle: Handler = async (request, response) => {
    if (request.method === 'GET')
      response
        .writeHead(200, { etag: `"${state.version}"`, 'content-type': 'text/plain' })
        .end(`${state.units}`)
    else {
      const body = await text(request)
      const isCurrent = request.headers['if-match'] === `"${state.version}"`
      if (isCurrent)
        Object.assign(state, { units: Number(body), version: state.version + 1, writes: state.writes + 1 })
      response.writeHead(isCurrent ? 204 : 412).end()
    }
  }
  return { state, handle }
}

const pairOf = (url: string, options: Partial<EtagPairOptions> = {}) => etagPair(url, { fetch, ...options })

describe('etagPair', () => {
  test('of many updates at once none is lost', async () => {
    const { state, handle } = counter()
    const pair = pairOf(await serve(handle))
    const take = () =>
      optimisticUpdate(pair.read, (row) => pair.write(row, String(Number(row.body) - 1)), {
        retries: 100,
        jitterMs: 1,
      })
    await Promise.all(Array.from({ length: 10 }, take))
    assert.deepEqual(state, { units: 0, version: 11, writes: 10 })
  })

  test('a lost answer is an error, and nothing is tried again', async () => {
    const { state, handle } = counter()
    const url = await serve(async (request, response) => {
      if (request.method === 'PUT') response.writeHead = () => response.destroy() as never
      await handle(request, response)
    })
    const pair = pairOf(url)
    const updating = optimisticUpdate(pair.read, (row) => pair.write(row, '9'))
    await assert.rejects(updating, (error: Error & { outcome?: string }) => {
      assert.equal(error.outcome, 'unknown')
      assert.doesNotMatch(error.message, /secret/)
      return true
    })
    assert.equal(state.writes, 1)
  })

  test('a service that never answers is given up', async () => {
    const clock = createFakeClock()
    const asked = Promise.withResolvers<void>()
    const url = await serve(() => asked.resolve())
    const reading = assert.rejects(pairOf(url, { clock, callTimeoutMs: 1_000 }).read(), {
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
    })
    await asked.promise
    await clock.advance(1_000)
    await reading
  })

  const answers: readonly [number, boolean | string][] = [
    [200, true],
    [204, true],
    [404, false],
    [409, false],
    [410, false],
    [412, false],
    [307, 'not-applied'],
    [400, 'not-applied'],
    [403, 'not-applied'],
    [429, 'unknown'],
    [500, 'unknown'],
    [503, 'unknown'],
  ]
  test.each(answers)('a write that is answered %i: %s', async (status, expected) => {
    let requests = 0
    const url = await serve((_request, response) => {
      requests++
      response.writeHead(status, { location: '/elsewhere' }).end()
    })
    const writing = pairOf(url).write({ body: '', etag: '"1"', contentType: null }, 'body')
    if (typeof expected === 'boolean') assert.equal(await writing, expected)
    else await assert.rejects(writing, { code: 'BACKEND_UNAVAILABLE', outcome: expected })
    assert.equal(requests, 1)
  })

  test('a resource that is missing is null, and one without a strong ETag is refused', async () => {
    const missing = pairOf(await serve((_request, response) => void response.writeHead(404).end()))
    assert.equal(await missing.read(), null)
    for (const headers of [{}, { etag: 'W/"1"' }]) {
      const url = await serve((_request, response) => void response.writeHead(200, headers).end('body'))
      await assert.rejects(pairOf(url).read(), { code: 'UNSUPPORTED' })
    }
    const broken = pairOf(await serve((_request, response) => void response.writeHead(500).end()))
    await assert.rejects(broken.read(), { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
  })

  test('bad input is refused', () => {
    const invalid = { code: 'INVALID_ARGUMENT' }
    const wrong = [{ fetch: undefined }, { method: 'GET' }, { callTimeoutMs: 0 }, { retries: 3 }]
    for (const options of wrong) assert.throws(() => pairOf('http://127.0.0.1/', options as object), invalid)
    assert.throws(() => pairOf('/stock/42'), invalid)
  })
})
