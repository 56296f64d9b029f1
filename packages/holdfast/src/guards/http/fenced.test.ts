import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, test } from 'vitest'
import { createStock, fenceOf, key, serveStock, signedText } from '../../../test/http/guarded-stock.ts'
import { servers } from '../../../test/http/servers.ts'
import { onEvent } from '../../base/events.ts'
import { formatFence } from '../../base/fence-text.ts'
import { fenced, fencedWeb, type NodeRequest, type ProblemDocument } from '../http.ts'
import { memoryGuard } from '../memory.ts'

const put = (url: string, fence: string | undefined, body = '7') =>
  fetch(url, { method: 'PUT', body, headers: fence === undefined ? {} : { 'holdfast-fence': fence } })
const get = (url: string, fence?: string, method = 'GET') =>
  fetch(url, { method, headers: fence === undefined ? {} : { 'holdfast-fence': fence } })

async function assertProblem(response: Response, status: number, code: string): Promise<void> {
  assert.equal(response.status, status)
  assert.match(response.headers.get('content-type') ?? '', /^application\/problem\+json/)
  const document = (await response.json()) as ProblemDocument
  assert.deepEqual([document.status, document.code], [status, code])
}

describe.each(servers)('a fenced service on %s', (server) => {
  test('G5 a stale fence gets 409 and changes nothing, the current one passes as often as it comes', async () => {
    const stock = createStock()
    await using service = await serveStock(server, stock)
    const url = `${service.url}/stock/42`
    for (const units of ['1', '2']) {
      const response = await put(url, signedText(5n), units)
      assert.deepEqual([response.status, await response.text()], [200, 'stored'])
    }
    await assertProblem(await put(url, signedText(4n), 'stale'), 409, 'FENCE_STALE')
    assert.equal(stock.units('42'), '2')
  })

  test('a fence for another name, forged, unsigned, foreign, malformed or missing is refused', async () => {
    const stock = createStock()
    await using service = await serveStock(server, stock)
    const url = `${service.url}/stock/42`
    await assertProblem(await put(url, signedText(5n, { name: 'sku:41' })), 403, 'FENCE_INVALID')
    await assertProblem(await put(url, signedText(5n).replace('/5/', '/6/')), 403, 'FENCE_INVALID')
    await assertProblem(await put(url, formatFence(fenceOf(5n))), 403, 'FENCE_INVALID')
    await assertProblem(await put(url, signedText(5n, { issuer: 'other' })), 403, 'FENCE_FOREIGN')
    await assertProblem(await put(url, 'hf1/nonsense'), 400, 'FENCE_INVALID')
    await assertProblem(await put(url, undefined), 428, 'FENCE_INVALID')
    await assertProblem(await get(url), 428, 'FENCE_INVALID')
    assert.equal(stock.units('42'), undefined)
    assert.equal(await stock.guard.highest('sku:42'), null)
  })

  test('T40 a read raises the mark before its handler runs, and is not cached', async () => {
    const stock = createStock()
    await using service = await serveStock(server, stock)
    const url = `${service.url}/stock/42`
    await put(url, signedText(5n))
    const read = await get(url, signedText(6n))
    assert.deepEqual(
      [read.status, await read.text(), read.headers.get('cache-control')],
      [200, '7', 'no-store'],
    )
    await assertProblem(await put(url, signedText(5n), 'lost update'), 409, 'FENCE_STALE')
    await assertProblem(await get(url, signedText(5n)), 409, 'FENCE_STALE')
    assert.equal((await get(url, signedText(7n), 'HEAD')).status, 200)
    assert.equal((await stock.guard.highest('sku:42'))?.token, 7n)
  })

  test("reads: 'open' lets a read pass without a fence, and judges one that comes with it", async () => {
    const stock = createStock()
    await using service = await serveStock(server, stock, { reads: 'open' })
    const url = `${service.url}/stock/42`
    await put(url, signedText(5n))
    const read = await get(url)
    assert.deepEqual([read.status, await read.text(), read.headers.get('cache-control')], [200, '7', null])
    await assertProblem(await get(url, signedText(4n)), 409, 'FENCE_STALE')
    await assertProblem(await put(url, undefined), 428, 'FENCE_INVALID')
  })

  test('checkBefore judges before the handler runs', async () => {
    const stock = createStock()
    await using service = await serveStock(server, stock, { checkBefore: true })
    const url = `${service.url}/stock/42`
    assert.equal((await put(url, signedText(5n), '8')).status, 200)
    await assertProblem(await put(url, signedText(4n), 'stale'), 409, 'FENCE_STALE')
    assert.equal(stock.units('42'), '8')
  })

  test("an error of the handler's own stays with the server", async () => {
    await using service = await serveStock(server, createStock())
    const url = `${service.url}/stock/42`
    const response = await fetch(url, { method: 'POST', headers: { 'holdfast-fence': signedText(5n) } })
    assert.equal(response.status, 500)
    assert.notEqual(response.headers.get('content-type'), 'application/problem+json')
  })
})

describe('fenced', () => {
  const guard = memoryGuard()
  test.each<[string, object]>([
    ['an unknown option', { guard, unsigned: true, name: () => 'n', read: 'open' }],
    ['no guard', { unsigned: true, name: () => 'n' }],
    ['no name', { guard, unsigned: true }],
    ['a name that is no function', { guard, unsigned: true, name: 'n' }],
    ['no trust', { guard, name: () => 'n' }],
    ['keys and unsigned', { guard, name: () => 'n', keys: [key], unsigned: true }],
    ['reads that do not exist', { guard, name: () => 'n', unsigned: true, reads: 'none' }],
    ['checkBefore that is no boolean', { guard, name: () => 'n', unsigned: true, checkBefore: 1 }],
  ])('INVALID_ARGUMENT for %s', (_, options) => {
    for (const adapter of [fenced, fencedWeb])
      assert.throws(() => (adapter as unknown as (...args: unknown[]) => void)(options, () => {}), {
        code: 'INVALID_ARGUMENT',
      })
  })

  test('a store that cannot answer is 503 with Retry-After, and an unknown outcome is said', async () => {
    const stock = createStock()
    const { BackendUnavailableError } = await import('../../base/errors.ts')
    const options = { guard: stock.guard, keys: [key], name: () => 'sku:42' }
    const handle = fencedWeb(options, () => {
      throw new BackendUnavailableError('sqlite', 'secret.db is busy', 'unknown')
    })
    const headers = { 'holdfast-fence': signedText(5n) }
    const response = await handle(new Request('http://stock/42', { method: 'PUT', headers }))
    assert.equal(response.headers.get('retry-after'), '1')
    assert.equal(response.status, 503)
    const { outcome, code, retryable, detail } = (await response.json()) as ProblemDocument
    assert.deepEqual([outcome, code, retryable], ['unknown', 'BACKEND_UNAVAILABLE', true])
    assert.doesNotMatch(detail, /secret/)
  })

  test('without next, a handler that fails gets its client 500, or breaks off the answer that it has begun', async () => {
    const warnings: string[] = []
    const stop = onEvent('warning', ({ code }) => void warnings.push(code))
    let handled: Promise<void> | undefined
    const handle = fenced({ guard, unsigned: true, name: () => 'n' }, async (request, response) => {
      if (request.url === '/begun') response.write('begun')
      if (request.url === '/ended') response.end('ended')
      if (request.url === '/body') for await (const _ of request);
      throw new Error('planted')
    })
    const server = createServer((incoming, response) => {
      handled = handle(incoming, response)
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const headers = { 'holdfast-fence': formatFence(fenceOf(5n, { name: 'n' })) }
    const ask = (path: string) => fetch(url + path, { method: 'PUT', headers })
    try {
      assert.equal((await ask('/')).status, 500)
      assert.equal(await (await ask('/ended')).text(), 'ended')
      await assert.rejects(async () => (await ask('/begun')).text())
      await handled
      assert.deepEqual(warnings, ['HOLDFAST_HTTP', 'HOLDFAST_HTTP', 'HOLDFAST_HTTP'])
      const cut = request(`${url}/body`, { method: 'PUT', headers: { ...headers, 'content-length': '100' } })
      cut.on('error', () => {}).write('half')
      await once(server, 'request')
      cut.destroy()
      await handled
      assert.equal(warnings.length, 3, 'a client that has left is not worth a warning')
    } finally {
      stop()
      server.closeAllConnections()
      server.close()
    }
  })

  test('once the answer has begun, a refusal is the error of the server', async () => {
    const { guard: late } = createStock()
    interface Late extends NodeRequest {
      readonly res?: { headersSent: boolean }
    }
    const options = { guard: late, unsigned: true, name: (_: Late) => 'sku:42' } as const
    const handle = fenced(options, async (_request, response, { fence }) => {
      response.headersSent = true
      await late.run(fenceOf(9n), () => {})
      await late.run(fence, () => {})
    })
    const errors: unknown[] = []
    const request = { method: 'PUT', headers: { 'holdfast-fence': formatFence(fenceOf(5n)) } }
    await handle(request, { headersSent: false }, (error) => errors.push(error))
    assert.equal((errors[0] as { code?: string }).code, 'FENCE_STALE')
  })
})
