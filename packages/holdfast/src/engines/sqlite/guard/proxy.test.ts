import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { type EventEmitter, once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { fenceOf, key, signedText } from '../../../../test/http/guarded-stock.ts'
import { onEvent } from '../../../base/events.ts'
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
  outgoing.setHeader('set-cookie', ['a=1', 'b=2']).setHeader('connection', 'x-back').setHeader('x-back', 'no')
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
    const sent = {
      'x-mine': 'yes',
      connection: 'keep-alive, x-hop',
      'x-hop': 'no',
      te: 'trailers',
      x_fencing_token: '9',
    }
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
    for (const gone of ['holdfast-fence', 'x-hop', 'te', 'x_fencing_token'])
      assert.equal(headers[gone], undefined)
    assert.deepEqual([answer.headers['set-cookie'], answer.headers['x-back']], [['a=1', 'b=2'], undefined])
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
      '/stock//42',
      '/stock/42//',
      '/stock/%34%32',
      '/st%6Fck/42',
      '/stock/42%5f',
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

  test('a header that leads some services to another URL or method is refused, with a fence and without', async () => {
    await using proxy = await start({ reads: 'open' })
    serve = () => assert.fail('nothing of this may come here')
    for (const header of [
      'X-Original-URL',
      'x_rewrite_url',
      'X-HTTP-Method',
      'X-HTTP-Method-Override',
      'X-Method-Override',
    ]) {
      const headers = { [header]: '/stock/41' }
      assert.deepEqual(await codeOf(await put(proxy, 6n, { headers })), [400, 'AMBIGUOUS_TARGET'], header)
      assert.equal((await fetch(`${proxy.url}/stock/42`, { headers })).status, 400, header)
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

  test('a request whose client left while it waited is not forwarded', async () => {
    await using proxy = await start()
    const arrived = nextRequest()
    const older = put(proxy, 5n)
    const slow = await arrived
    const tokens: unknown[] = []
    serve = (incoming, outgoing) => {
      tokens.push(incoming.headers['x-fencing-token'])
      outgoing.end()
    }
    const gone = new AbortController()
    const waiting = put(proxy, 6n, { signal: gone.signal })
    // It has raised its mark as soon as the older one is refused.
    while ((await put(proxy, 5n)).status !== 409) tokens.length = 0
    gone.abort()
    await assert.rejects(waiting)
    for (let trip = 0; trip < 2; trip++) assert.equal((await put(proxy, 4n)).status, 409)
    slow.end()
    await older
    assert.equal((await put(proxy, 7n)).status, 200)
    assert.deepEqual(tokens, ['7'])
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

  test('a target that breaks off in the middle of its answer may have done it, and its client is cut off', async () => {
    await using proxy = await start()
    serve = (incoming, outgoing) => {
      outgoing.setHeader('content-length', '100').write('half')
      setTimeout(() => incoming.socket.destroy(), 1)
    }
    const cut = await put(proxy, 5n)
    await assert.rejects(cut.text())
    assert.deepEqual(await codeOf(await put(proxy, 6n)), [503, 'QUARANTINED'])
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

  test('T95 an answer is read to its end, although its client has left after the first part', async () => {
    await using proxy = await start({ clock: createFakeClock() })
    serve = (_incoming, outgoing) => outgoing.end('x'.repeat(20_000_000))
    const left = request(`${proxy.url}/stock/42`, { headers: { 'holdfast-fence': signedText(5n) } }).end()
    const [answer] = (await once(left, 'response')) as [IncomingMessage]
    await once(answer, 'data')
    left.destroy()
    serve = echo
    assert.equal((await put(proxy, 6n)).status, 200)
  })

  test('T95 an answer that arrived while the proxy was blocked is read before its request is late', async () => {
    let fire: (() => void) | undefined
    const setTimer = (_delayMs: number, late: () => void) => {
      fire = late
      return { cancel: () => (fire = undefined) }
    }
    await using proxy = await start({ clock: { ...createFakeClock(), setTimer } })
    const arrived = nextRequest()
    const asked = put(proxy, 5n)
    const outgoing = await arrived
    // The timer fires as after a pause: the answer is on the socket already, but Node reads sockets after timers.
    await new Promise<void>((resolve) =>
      setTimeout(() => {
        outgoing.end('done')
        fire?.()
        resolve()
      }, 1),
    )
    assert.equal((await asked).status, 200)
    serve = echo
    assert.equal((await put(proxy, 6n)).status, 200)
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

  test('a body stays a body when its length is named as a header of the connection', async () => {
    await using proxy = await start()
    let requests = 0
    serve = (incoming, outgoing) => {
      requests++
      echo(incoming, outgoing)
    }
    const { hostname, port } = new URL(proxy.url)
    const socket = connect(Number(port), hostname)
    const smuggled = 'PUT /stock/41 HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n'
    const lines = [
      'DELETE /stock/42 HTTP/1.1',
      'host: x',
      `holdfast-fence: ${signedText(5n)}`,
      'connection: close, content-length, transfer-encoding',
      `content-length: ${smuggled.length}`,
    ]
    socket.write(`${lines.join('\r\n')}\r\n\r\n${smuggled}`)
    let answer = ''
    for await (const chunk of socket) answer += chunk
    assert.match(answer, /^HTTP\/1\.1 200/)
    assert.match(answer, /PUT \/stock\/41/, 'the service has seen it as the body')
    assert.equal(requests, 1)
  })

  test('a body that is slower than the limit is given up, and may have taken effect', async () => {
    const clock = createFakeClock()
    await using proxy = await start({ clock, limitMs: 1_000 })
    const arrived = nextRequest()
    const slow = request(`${proxy.url}/stock/42`, {
      method: 'PUT',
      headers: { 'holdfast-fence': signedText(5n), 'content-length': '100' },
    }).on('error', () => {})
    slow.write('half')
    const answer = once(slow, 'response') as Promise<[IncomingMessage]>
    await arrived
    await clock.advance(1_000)
    assert.equal((await answer)[0].statusCode, 504)
    assert.deepEqual(await codeOf(await put(proxy, 6n)), [503, 'QUARANTINED'])
    slow.destroy()
  })

  test('a client that is slow with its headers is cut off', async () => {
    await using proxy = await start({ limitMs: 50 })
    const { hostname, port } = new URL(proxy.url)
    for (const begun of ['', 'PUT /stock/42 HTTP/1.1\r\nhost: x\r\n']) {
      const socket = connect(Number(port), hostname)
      socket.write(begun)
      await once(socket.resume(), 'close')
    }
  })

  test('close answers what was forwarded, cuts off connections without a request, and forwards nothing more', async () => {
    const proxy = await start()
    const { hostname, port } = new URL(proxy.url)
    const idle = ['', 'PUT /stock/42 HTTP/1.1\r\nhost: x\r\n'].map((begun) => {
      const socket = connect(Number(port), hostname)
      socket.on('error', () => {}).write(begun)
      return once(socket.resume(), 'close')
    })
    const arrived = nextRequest()
    const body = 'x'.repeat(1_000_000)
    const kept = new Agent({ keepAlive: true, maxSockets: 1 })
    const ask = () =>
      request(`${proxy.url}/stock/42`, {
        method: 'PUT',
        agent: kept,
        headers: { 'holdfast-fence': signedText(5n) },
      }).end()
    const asked = once(ask(), 'response') as Promise<[IncomingMessage]>
    const outgoing = await arrived
    serve = () => assert.fail('nothing of this may come here')
    const closed = proxy.close()
    outgoing.end(body)
    let text = ''
    for await (const chunk of (await asked)[0]) text += chunk
    assert.equal(text, body)
    await Promise.all([closed, ...idle])
    await assert.rejects(once(ask(), 'response'))
    kept.destroy()
    await proxy.close()
  })

  test('an answer that nobody fetches does not keep the proxy from closing', async () => {
    const clock = createFakeClock()
    const proxy = await start({ clock, limitMs: 1_000 })
    const arrived = nextRequest()
    const { hostname, port } = new URL(proxy.url)
    const socket = connect(Number(port), hostname).on('error', () => {})
    socket.write(
      `PUT /stock/42 HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nholdfast-fence: ${signedText(5n)}\r\n\r\n`,
    )
    ;(await arrived).end('x'.repeat(20_000_000))
    const closed = proxy.close()
    let isClosed = false
    void closed.then(() => (isClosed = true))
    while (!isClosed) {
      await clock.advance(1_000)
      await new Promise((resolve) => setImmediate(resolve))
    }
    socket.destroy()
  })

  test('an error of the server after its start is told, and the proxy goes on', async () => {
    const codes: string[] = []
    const stop = onEvent('warning', ({ code }) => void codes.push(code))
    await using proxy = await start()
    const { promise, resolve } = Promise.withResolvers<EventEmitter>()
    const heard = (message: unknown) => resolve((message as { server: EventEmitter }).server)
    subscribe('http.server.request.start', heard)
    await put(proxy, 5n)
    ;(await promise).emit('error', new Error('accept EMFILE'))
    unsubscribe('http.server.request.start', heard)
    assert.equal((await put(proxy, 6n)).status, 200)
    assert.deepEqual(codes, ['HOLDFAST_PROXY'])
    stop()
  })

  test('a failure of the proxy itself is told, and a refusal is not', async () => {
    const warnings: string[] = []
    const stop = onEvent('warning', ({ warning }) => void warnings.push(warning))
    const fails = () => {
      throw new Error('planted')
    }
    let looks = 0
    const monotonicMs = () => (++looks === 1 ? 0 : fails())
    await using broken = await start({ clock: { ...createFakeClock(), monotonicMs } })
    assert.deepEqual(await codeOf(await put(broken, 5n)), [503, 'PROXY_FAILED'])
    await using mute = await start({ clock: { ...createFakeClock(), wallMs: fails } })
    assert.deepEqual(await codeOf(await put(mute, 5n)), [503, 'BACKEND_UNAVAILABLE'])
    assert.equal(warnings.length, 2)
    for (const warning of warnings) assert.match(warning, /planted/)
    await using sound = await start()
    await put(sound, 5n)
    assert.equal((await put(sound, 4n)).status, 409)
    assert.equal((await fetch(sound.url)).status, 428)
    assert.equal(warnings.length, 2)
    stop()
  })

  test('marks in the file of a locker, or a port that is taken, are refused, and the file is free again', async () => {
    const lockers = join(folder, 'locker.db')
    const database = new DatabaseSync(lockers)
    database.exec(`PRAGMA application_id = ${0x48465354}`)
    await assert.rejects(start({ marks: lockers }), { code: 'INVALID_ARGUMENT' })
    database.exec('BEGIN EXCLUSIVE; COMMIT')
    database.close()
    await using other = await start()
    const marks = join(folder, 'twice.db')
    await assert.rejects(start({ marks, port: Number(new URL(other.url).port) }), { code: 'EADDRINUSE' })
    await using again = await start({ marks })
    assert.equal((await put(again, 5n)).status, 200)
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
