import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { fenceOf, key, signedText } from '../../../../test/http/guarded-stock.ts'
import { makeFence } from '../../../base/fence.ts'
import { formatFence } from '../../../base/fence-text.ts'
import type { ProblemDocument } from '../../../guards/http.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { type FencingProxyOptions, fencingProxy } from './proxy.ts'

const folder = mkdtempSync(join(tmpdir(), 'holdfast-proxy-'))
let files = 0
let serve: (incoming: IncomingMessage, outgoing: ServerResponse) => void
const target = createServer((incoming, outgoing) => serve(incoming, outgoing))
const echo: typeof serve = async (incoming, outgoing) => {
  const chunks: Buffer[] = []
  for await (const chunk of incoming) chunks.push(chunk as Buffer)
  outgoing.setHeader('set-cookie', ['a=1', 'b=2']).setHeader('x-answer', 'yes')
  outgoing.end(
    JSON.stringify({ headers: incoming.headers, url: incoming.url, body: Buffer.concat(chunks).toString() }),
  )
}
let url = ''
beforeAll(async () => {
  target.listen(0, '127.0.0.1')
  await once(target, 'listening')
  url = `http://127.0.0.1:${(target.address() as AddressInfo).port}`
})
beforeEach(() => {
  serve = echo
})
afterAll(() => {
  target.closeAllConnections()
  target.close()
  rmSync(folder, { recursive: true })
})

const nameOf = (incoming: IncomingMessage) => `sku:${(incoming.url ?? '').split(/[/?]/)[2]}`
const start = (options: Partial<FencingProxyOptions> = {}) =>
  fencingProxy({
    target: url,
    marks: join(folder, `${files++}.db`),
    name: nameOf,
    keys: [key],
    ...options,
  } as FencingProxyOptions)
const put = (proxy: { url: string }, token: bigint, init: RequestInit = {}) =>
  fetch(`${proxy.url}/stock/42`, {
    method: 'PUT',
    body: 'units',
    ...init,
    headers: { 'holdfast-fence': signedText(token), ...init.headers },
  })

async function codeOf(response: Response): Promise<[number, string]> {
  return [response.status, ((await response.json()) as ProblemDocument).code]
}

/** The next request that comes to the target; it is answered when the test says so. */
function nextRequest(): Promise<ServerResponse> {
  const { promise, resolve } = Promise.withResolvers<ServerResponse>()
  serve = (_incoming, outgoing) => resolve(outgoing)
  return promise
}

describe('fencingProxy', () => {
  test('forwards body and headers of a current holder, without the fence and what is about the connection', async () => {
    await using proxy = await start()
    const sent = { 'x-mine': 'yes', connection: 'keep-alive, x-hop', 'x-hop': 'no', te: 'trailers' }
    const incoming = request(`${proxy.url}/stock/42?a=b`, {
      method: 'PUT',
      headers: { ...sent, 'holdfast-fence': signedText(5n) },
    })
    incoming.write('one ')
    incoming.end('two')
    const [answer] = (await once(incoming, 'response')) as [IncomingMessage]
    const chunks: Buffer[] = []
    for await (const chunk of answer) chunks.push(chunk as Buffer)
    const { headers, url: path, body } = JSON.parse(Buffer.concat(chunks).toString())
    assert.deepEqual(
      [answer.statusCode, path, body, headers['x-mine']],
      [200, '/stock/42?a=b', 'one two', 'yes'],
    )
    assert.deepEqual(
      [headers['x-fencing-token'], headers['transfer-encoding'], headers.connection],
      ['5', 'chunked', 'close'],
    )
    for (const gone of ['holdfast-fence', 'x-hop', 'te']) assert.equal(headers[gone], undefined)
    assert.deepEqual(answer.headers['set-cookie'], ['a=1', 'b=2'])
  })

  test('refuses what is stale, forged, for another name, missing, or ambiguous, and forwards nothing of it', async () => {
    await using proxy = await start()
    assert.equal((await put(proxy, 5n)).status, 200)
    serve = () => assert.fail('nothing of this may come here')
    assert.deepEqual(await codeOf(await put(proxy, 4n)), [409, 'FENCE_STALE'])
    const withFence = (text: string) => put(proxy, 5n, { headers: { 'holdfast-fence': text } })
    assert.deepEqual(await codeOf(await withFence(signedText(6n, { name: 'sku:41' }))), [
      403,
      'FENCE_INVALID',
    ])
    assert.deepEqual(await codeOf(await withFence(formatFence(fenceOf(6n)))), [403, 'FENCE_INVALID'])
    assert.deepEqual(await codeOf(await withFence('nonsense')), [400, 'FENCE_INVALID'])
    assert.deepEqual(await codeOf(await fetch(`${proxy.url}/stock/42`)), [428, 'FENCE_INVALID'])
    for (const path of [
      '/stock/41/../42',
      '/stock/41/%2e%2E/42',
      '/stock%2f42',
      '//stock/42',
      '/stock/%zz',
      '/a\\b',
      'http://x/stock/42',
      '/./stock',
    ]) {
      const asked = request(proxy.url, {
        path,
        method: 'PUT',
        headers: { 'holdfast-fence': signedText(6n) },
      }).end()
      const [{ statusCode }] = (await once(asked, 'response')) as [IncomingMessage]
      assert.equal(statusCode, 400, path)
    }
  })

  test('T95 a newer holder waits for the answer to an older one, which is told so meanwhile', async () => {
    await using proxy = await start()
    const arrived = nextRequest()
    const older = put(proxy, 5n)
    const slow = await arrived
    const order: string[] = []
    serve = (_incoming, outgoing) => {
      order.push('newer')
      outgoing.end('done')
    }
    const newer = put(proxy, 6n)
    // It has raised its mark as soon as the older one is refused.
    for (;;) {
      const refused = await put(proxy, 4n)
      assert.deepEqual(await codeOf(refused), [409, 'FENCE_STALE'])
      if ((await Promise.race([put(proxy, 5n).then(({ status }) => status)])) === 409) break
      order.length = 0
    }
    assert.deepEqual(order, [])
    slow.end('at last')
    assert.equal(await (await older).text(), 'at last')
    assert.equal(await (await newer).text(), 'done')
    assert.deepEqual(order, ['newer'])
  })

  test('a request without an answer is 504, and newer ones are 503 until limit and quarantine are over', async () => {
    const clock = createFakeClock()
    await using proxy = await start({ clock, limitMs: 1_000, quarantineMs: 9_000 })
    const arrived = nextRequest()
    const hangs = put(proxy, 5n)
    await arrived
    await clock.advance(1_000)
    const timedOut = await hangs
    const { outcome } = (await timedOut.clone().json()) as ProblemDocument
    assert.deepEqual([...(await codeOf(timedOut)), outcome], [504, 'TARGET_TIMEOUT', 'unknown'])
    serve = echo
    const refused = await put(proxy, 6n)
    assert.equal(refused.headers.get('retry-after'), '10')
    assert.deepEqual(await codeOf(refused), [503, 'QUARANTINED'])
    await clock.advance(10_000)
    assert.equal((await put(proxy, 7n)).status, 200)
  })

  test('a target that breaks off may have done it; one that cannot be reached has not', async () => {
    await using proxy = await start()
    serve = (incoming) => incoming.socket.destroy()
    assert.deepEqual(await codeOf(await put(proxy, 5n)), [502, 'TARGET_FAILED'])
    assert.deepEqual(await codeOf(await put(proxy, 6n)), [503, 'QUARANTINED'])
    const closed = createServer().listen(0, '127.0.0.1')
    await once(closed, 'listening')
    const { port } = closed.address() as AddressInfo
    await new Promise((resolve) => closed.close(resolve))
    await using lost = await start({ target: `http://127.0.0.1:${port}` })
    for (const token of [5n, 6n])
      assert.deepEqual(await codeOf(await put(lost, token)), [503, 'TARGET_UNREACHABLE'])
  })

  test('an answer that is none does not end the proxy', async () => {
    const strange = createTcpServer((socket) => {
      socket
        .on('error', () => {})
        .once('data', () => socket.end('HTTP/1.1 099 Strange\r\ncontent-length: 0\r\n\r\n'))
    }).listen(0, '127.0.0.1')
    await once(strange, 'listening')
    try {
      await using proxy = await start({
        target: `http://127.0.0.1:${(strange.address() as AddressInfo).port}`,
      })
      assert.deepEqual(await codeOf(await put(proxy, 5n)), [502, 'TARGET_FAILED'])
      assert.deepEqual(await codeOf(await put(proxy, 6n)), [503, 'QUARANTINED'])
    } finally {
      strange.close()
    }
  })

  test('a client that leaves in the middle of its body puts the name into quarantine; one that leaves before the answer does not', async () => {
    await using proxy = await start()
    const arrived = nextRequest()
    const cut = request(`${proxy.url}/stock/42`, {
      method: 'PUT',
      headers: { 'holdfast-fence': signedText(5n), 'content-length': '100' },
    })
    cut.on('error', () => {})
    cut.write('half')
    await arrived
    cut.destroy()
    serve = echo
    let newer = await put(proxy, 6n)
    assert.deepEqual(await codeOf(newer), [503, 'QUARANTINED'])
    const next = nextRequest()
    const gone = new AbortController()
    const left = fetch(`${proxy.url}/stock/7`, {
      method: 'PUT',
      signal: gone.signal,
      headers: { 'holdfast-fence': signedText(5n, { name: 'sku:7' }) },
    })
    const outgoing = await next
    gone.abort()
    await assert.rejects(left)
    serve = echo
    const waiting = fetch(`${proxy.url}/stock/7`, {
      method: 'PUT',
      headers: { 'holdfast-fence': signedText(6n, { name: 'sku:7' }) },
    })
    outgoing.end('done')
    newer = await waiting
    assert.equal(newer.status, 200)
  })

  test('reads: without a fence only if they are open; with one they raise the mark and are not cached', async () => {
    await using strict = await start()
    assert.equal((await fetch(`${strict.url}/stock/42`)).status, 428)
    await using open = await start({ reads: 'open' })
    assert.equal((await fetch(`${open.url}/stock/42`)).headers.get('cache-control'), null)
    const read = await fetch(`${open.url}/stock/42`, { headers: { 'holdfast-fence': signedText(6n) } })
    assert.deepEqual([read.status, read.headers.get('cache-control')], [200, 'no-store'])
    assert.deepEqual(await codeOf(await put(open, 5n)), [409, 'FENCE_STALE'])
    assert.equal((await fetch(`${open.url}/stock/42`, { method: 'DELETE' })).status, 428)
  })

  test('two lengths of one body are refused before they come anywhere', async () => {
    await using proxy = await start()
    serve = () => assert.fail('nothing of this may come here')
    const { hostname, port } = new URL(proxy.url)
    const socket = connect(Number(port), hostname)
    const lines = [
      'PUT /stock/42 HTTP/1.1',
      'host: x',
      `holdfast-fence: ${signedText(5n)}`,
      'content-length: 4',
      'transfer-encoding: chunked',
    ]
    socket.write(`${lines.join('\r\n')}\r\n\r\n0\r\n\r\nGET /stock/41 HTTP/1.1\r\n\r\n`)
    let answer = ''
    for await (const chunk of socket) answer += chunk
    assert.match(answer, /^HTTP\/1\.1 400/)
  })

  test('one proxy has a file, and marks outlive it', async () => {
    const marks = join(folder, 'shared.db')
    const first = await start({ marks })
    await assert.rejects(start({ marks }), { code: 'UNSUPPORTED' })
    assert.equal((await put(first, 5n)).status, 200)
    await first.close()
    await using second = await start({ marks })
    assert.deepEqual(await codeOf(await put(second, 4n)), [409, 'FENCE_STALE'])
    assert.equal((await put(second, 6n)).status, 200)
  })

  test('shared fences pass together', async () => {
    await using proxy = await start()
    const text = (token: bigint) =>
      formatFence(makeFence({ issuer: 'stock', name: 'sku:42', mode: 'shared', token, grant: `g${token}` }), {
        signWith: key,
      })
    const answers = await Promise.all(
      [3n, 1n, 2n].map((token) => put(proxy, token, { headers: { 'holdfast-fence': text(token) } })),
    )
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200, 200],
    )
  })

  test('a name that fails is refused', async () => {
    for (const name of [() => assert.fail('no route'), () => undefined as never]) {
      await using proxy = await start({ name })
      serve = () => assert.fail('nothing of this may come here')
      assert.equal((await put(proxy, 5n)).status, 400)
    }
  })

  test.each<[string, object]>([
    ['an unknown option', { limit: 5 }],
    ['no trust', { keys: undefined }],
    ['keys and unsigned', { unsigned: true }],
    ['a target that is no URL', { target: 'here' }],
    ['a target with a path', { target: 'http://127.0.0.1/path' }],
    ['a target of another kind', { target: 'ftp://127.0.0.1' }],
    ['marks in memory', { marks: ':memory:' }],
    ['marks in a folder that is not there', { marks: join(folder, 'none', 'x.db') }],
    ['no name', { name: undefined }],
    ['a limit of 0', { limitMs: 0 }],
    ['reads that do not exist', { reads: 'none' }],
  ])('INVALID_ARGUMENT for %s', async (_, options) => {
    await assert.rejects(start(options), { code: 'INVALID_ARGUMENT' })
  })
})
