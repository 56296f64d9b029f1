import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { createStock, fenceOf, key, serveStock } from '../../../test/http/guarded-stock.ts'
import { StageLease } from '../../testing/guard-cases/stage.ts'
import { fencedFetch } from '../http.ts'

const server = createServer((request, response) => {
  if (request.url === '/slow') return
  if (request.url === '/redirect') return void response.writeHead(307, { location: '/elsewhere' }).end()
  response.end(JSON.stringify(request.headers))
})
let url = ''
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

const headersOf = async (answer: Promise<Response>) => (await (await answer).json()) as Record<string, string>

describe('fencedFetch', () => {
  test('shows the signed fence of the lease to a service', async () => {
    const stock = createStock()
    await using service = await serveStock('node', stock)
    const send = fencedFetch(new StageLease(fenceOf(5n)), { signWith: key })
    const response = await send(`${service.url}/stock/42`, { method: 'PUT', body: '9' })
    assert.equal(response.status, 200)
    assert.equal(stock.units('42'), '9')
  })

  test('keeps the headers of the caller, of a Request or of the options', async () => {
    const send = fencedFetch(new StageLease(fenceOf(5n)))
    const ofOptions = await headersOf(send(url, { headers: { 'x-mine': '1', 'holdfast-fence': 'old' } }))
    assert.deepEqual(
      [ofOptions['x-mine'], ofOptions['holdfast-fence']],
      ['1', 'hf1/stock/sku%3A42/exclusive/5/g5'],
    )
    const ofRequest = await headersOf(send(new Request(url, { headers: { 'x-mine': '2' } })))
    assert.deepEqual(
      [ofRequest['x-mine'], ofRequest['holdfast-fence']],
      ['2', 'hf1/stock/sku%3A42/exclusive/5/g5'],
    )
  })

  test('a request is cancelled when its lease is lost, and by the signals of its caller', async () => {
    const lease = new StageLease(fenceOf(5n))
    const send = fencedFetch(lease)
    const mine = new AbortController()
    const cancelled = assert.rejects(send(`${url}/slow`, { signal: mine.signal }), /mine/)
    const ofRequest = assert.rejects(send(new Request(`${url}/slow`, { signal: mine.signal })), /mine/)
    mine.abort(new Error('mine'))
    await Promise.all([cancelled, ofRequest])
    const lost = assert.rejects(send(`${url}/slow`), { code: 'LEASE_LOST' })
    lease.lose()
    await lost
  })

  test('a lease that has ended sends nothing', async () => {
    const lease = new StageLease(fenceOf(5n))
    let sent = 0
    const send = fencedFetch(lease, {
      fetch: async () => {
        sent++
        return new Response()
      },
    })
    await send(url)
    await lease.release()
    await assert.rejects(send(url), { code: 'LEASE_LOST' })
    assert.equal(sent, 1)
  })

  test('a redirect does not carry the fence away', async () => {
    const send = fencedFetch(new StageLease(fenceOf(5n)))
    await assert.rejects(send(`${url}/redirect`))
    await assert.rejects(send(new Request(`${url}/redirect`)))
    assert.equal((await send(`${url}/redirect`, { redirect: 'manual' })).status, 307)
    await assert.rejects(send(`${url}/redirect`, { redirect: 'follow' }), { code: 'INVALID_ARGUMENT' })
  })

  test.each<[string, object]>([
    ['an unknown option', { sign: key }],
    ['a fetch that is no function', { fetch: 'no' }],
    ['a key that is too short', { signWith: { id: 'k', secret: new Uint8Array(3) } }],
  ])('INVALID_ARGUMENT for %s', (_, options) => {
    assert.throws(() => fencedFetch(new StageLease(fenceOf(5n)), options as never), {
      code: 'INVALID_ARGUMENT',
    })
  })
})
