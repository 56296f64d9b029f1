import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import express, { type Request as ExpressRequest } from 'express'
import type { FastifyRequest } from 'fastify'
import type { Context } from 'hono'
import { afterAll, describe, test } from 'vitest'
import { type Running, type ServerName, servers, startServer } from '../../test/http/servers.ts'
import { onEvent } from '../base/events.ts'
import { type SqliteDatabase, sqliteIdempotent } from '../engines/sqlite/lockfree/index.ts'
import { keyIn } from './http/stored-answer.ts'
import {
  type HttpAnswer,
  idempotencyKey,
  idempotencyKeyFastify,
  idempotencyKeyWeb,
  type KeyedContext,
} from './http.ts'

const folder = mkdtempSync(join(tmpdir(), 'holdfast-keys-'))
const path = join(folder, 'keys.db')
const idempotent = sqliteIdempotent({ path })
const database = new DatabaseSync(path)
database.exec('CREATE TABLE charges (cents INTEGER) STRICT')
afterAll(async () => {
  await idempotent.close()
  database.close()
  rmSync(folder, { recursive: true })
})

type Work = (context: KeyedContext<SqliteDatabase, HttpAnswer>) => HttpAnswer | Promise<HttpAnswer>
type Options = {
  readonly waitMs?: number
  readonly required?: boolean
  readonly bodyBytes?: number
  readonly payload?: () => unknown
}

/** The caller is who the header says; a real service asks its session. */
const scopeFor = (caller: string | null | undefined) => `payments/${caller ?? 'nobody'}`

function serve(name: ServerName, work: Work, options: Options = {}): Promise<Running> {
  const common = { idempotent, ...options }
  const web = (answer: HttpAnswer) =>
    new Response(answer.body as string | null, { status: answer.status, headers: { ...answer.headers } })
  const inWeb = async (context: KeyedContext<SqliteDatabase, Response>) =>
    web(await work({ ...context, store: (tx, answer) => context.store(tx, web(answer)) }))
  const ofNode = idempotencyKey(
    { ...common, scope: (request) => scopeFor(request.headers['x-caller'] as string) },
    (_, context) => work(context),
  )
  return startServer(name, {
    node: (request, response) => ofNode(request, response).catch(() => void response.writeHead(500).end()),
    express: idempotencyKey(
      { ...common, scope: (request: ExpressRequest<{ sku: string }>) => scopeFor(request.get('x-caller')) },
      (_, context) => work(context),
    ),
    fastify: idempotencyKeyFastify(
      { ...common, scope: (request: FastifyRequest) => scopeFor(request.headers['x-caller'] as string) },
      (_, context) => work(context),
    ) as never,
    hono: idempotencyKeyWeb(
      { ...common, scope: (c: Context) => scopeFor(c.req.header('x-caller')) },
      (_, context) => inWeb(context),
    ),
    web: (request) =>
      idempotencyKeyWeb(
        { ...common, scope: ({ headers }: Request) => scopeFor(headers.get('x-caller')) },
        (_, context) => inWeb(context),
      )(request).catch(() => new Response(null, { status: 500 })),
  })
}

let keys = 0
const newKey = () => `key-${keys++}`

function post(
  service: Running,
  key: string | null,
  body = '{"cents":100}',
  more: Record<string, string> = {},
): Promise<Response> {
  const headers = { 'x-caller': 'ann', ...(key !== null && { 'idempotency-key': key }), ...more }
  return fetch(`${service.url}/stock/42`, { method: 'POST', body, headers })
}

async function codeOf(response: Response): Promise<[number, string, boolean]> {
  const { code, retryable } = (await response.json()) as { code: string; retryable: boolean }
  return [response.status, code, retryable]
}

describe.each(servers)('the header Idempotency-Key on %s', (server) => {
  test('the first request does the work, later ones get its status, body and the headers of the list', async () => {
    let calls = 0
    const work: Work = ({ body }) => {
      calls++
      const headers = { 'content-type': 'text/plain', location: '/charges/1', 'x-trace': 'mine' }
      return { status: 201, headers, body: `charged ${String(body)}` }
    }
    await using service = await serve(server, work)
    const key = newKey()
    const answers = [await post(service, `"${key}"`), await post(service, key)]
    for (const answer of answers) {
      assert.deepEqual([answer.status, await answer.text()], [201, 'charged {"cents":100}'])
      assert.equal(answer.headers.get('location'), '/charges/1')
      assert.match(answer.headers.get('content-type') ?? '', /^text\/plain/)
    }
    assert.deepEqual(
      answers.map(({ headers }) => headers.get('x-trace')),
      ['mine', null],
    )
    assert.equal(calls, 1)
  })

  test('another body, method or path with the key is refused, and another caller has keys of its own', async () => {
    let calls = 0
    await using service = await serve(server, () => ({ status: 200, body: `${++calls}` }))
    const key = newKey()
    assert.equal(await (await post(service, key)).text(), '1')
    assert.deepEqual(await codeOf(await post(service, key, '{"cents":200}')), [422, 'KEY_REUSED', false])
    const headers = { 'x-caller': 'ann', 'idempotency-key': key }
    const put = await fetch(`${service.url}/stock/42`, { method: 'PUT', body: '{"cents":100}', headers })
    assert.equal(put.status, 422)
    const elsewhere = await fetch(`${service.url}/stock/42?x=1`, {
      method: 'POST',
      body: '{"cents":100}',
      headers,
    })
    assert.equal(elsewhere.status, 422)
    assert.equal(await (await post(service, key, '{"cents":100}', { 'x-caller': 'bob' })).text(), '2')
  })

  test('a key that is missing or malformed is 400', async () => {
    await using service = await serve(server, () => ({ status: 200 }))
    assert.deepEqual(await codeOf(await post(service, null)), [400, 'KEY_MISSING', false])
    assert.deepEqual(await codeOf(await post(service, 'a b')), [400, 'KEY_MALFORMED', false])
  })

  test('an answer of 5xx and an error are not stored, and the next handler is told of the take-over', async () => {
    const takeovers: boolean[] = []
    await using service = await serve(server, ({ isTakeover }) => {
      takeovers.push(isTakeover)
      if (takeovers.length === 1) return { status: 503, body: 'later' }
      if (takeovers.length === 2) throw new Error('the handler has failed')
      return { status: 200, body: 'done' }
    })
    const key = newKey()
    const statuses = []
    for (let tries = 0; tries < 4; tries++) statuses.push((await post(service, key)).status)
    assert.deepEqual(statuses, [503, 500, 200, 200])
    assert.deepEqual(takeovers, [false, true, true])
  })
})

/** Runs the work once, for an answer that is none, and then refuses each retry in the same way. */
async function assertDoneOnce(service: Running, calls: () => number): Promise<void> {
  const key = newKey()
  assert.equal((await post(service, key)).status, 500)
  for (let tries = 0; tries < 2; tries++) {
    const again = await post(service, key)
    assert.equal(again.headers.get('retry-after'), null)
    assert.deepEqual(await codeOf(again), [409, 'ANSWER_LOST', false])
  }
  assert.equal(calls(), 1)
}

describe('idempotency keys over HTTP', () => {
  test.each(['node', 'express', 'fastify'] as const)(
    'T104 on %s an answer that is none is an error, and the work is not done again',
    async (server) => {
      for (const answer of [undefined, null, { status: 99 }, { status: 200, body: { charged: true } }]) {
        let calls = 0
        await using service = await serve(server, () => {
          calls++
          return answer as unknown as HttpAnswer
        })
        await assertDoneOnce(service, () => calls)
      }
    },
  )

  test('T104 a Response whose stream breaks is an error, and the work is not done again', async () => {
    let calls = 0
    const broken = () =>
      new ReadableStream({ pull: (controller) => controller.error(new Error('broke off')) })
    const handle = idempotencyKeyWeb({ idempotent, scope: () => 'streams' }, () => {
      calls++
      return new Response(broken() as never)
    })
    const request = (key: string) =>
      new Request('http://any/', { method: 'POST', headers: { 'idempotency-key': key } })
    await assert.rejects(handle(request('broken')), /broke off/)
    for (let tries = 0; tries < 2; tries++)
      assert.deepEqual(await codeOf(await handle(request('broken'))), [409, 'ANSWER_LOST', false])
    assert.equal(calls, 1)
    const failing = idempotencyKeyWeb({ idempotent, scope: () => 'streams' }, () => {
      calls++
      return new Response(broken() as never, { status: 503 })
    })
    for (let tries = 0; tries < 2; tries++) await assert.rejects(failing(request('again')), /broke off/)
    assert.equal(calls, 3, 'an answer of 5xx is not stored')
  })

  test('without next, no client and no handler can end the server', async () => {
    const warnings: string[] = []
    const stop = onEvent('warning', ({ code, warning }) => void warnings.push(`${code} ${warning}`))
    let handled = Promise.withResolvers<void>()
    const handle = idempotencyKey({ idempotent, scope: () => 'alone' }, (_, { body }) => {
      JSON.parse(String(body))
      return { status: 200 }
    })
    const server = createServer((request, response) => {
      handle(request, response).then(handled.resolve, handled.reject)
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    try {
      const cut = request(url, {
        method: 'POST',
        headers: { 'idempotency-key': newKey(), 'content-length': '100' },
      })
      cut.on('error', () => {}).write('half')
      await once(server, 'request')
      cut.destroy()
      await handled.promise
      assert.deepEqual(warnings, [])
      handled = Promise.withResolvers<void>()
      const failed = await fetch(url, { method: 'POST', body: '{', headers: { 'idempotency-key': newKey() } })
      assert.equal(failed.status, 500)
      await handled.promise
      assert.match(warnings.join(), /^HOLDFAST_HTTP A handler has failed: .*JSON/)
    } finally {
      stop()
      server.closeAllConnections()
      server.close()
    }
  })

  test('in progress: 409 with Retry-After, or the later request waits', async () => {
    const begun = Promise.withResolvers<void>()
    const gate = Promise.withResolvers<void>()
    const work: Work = async () => {
      begun.resolve()
      await gate.promise
      return { status: 200, body: 'once' }
    }
    await using service = await serve('node', work)
    await using patient = await serve('node', () => assert.fail('it was done'), { waitMs: 60_000 })
    const key = newKey()
    const first = post(service, key)
    await begun.promise
    const second = await post(service, key)
    assert.equal(second.headers.get('retry-after'), '1')
    assert.deepEqual(await codeOf(second), [409, 'IN_PROGRESS', true])
    const waiting = post(patient, key)
    gate.resolve()
    assert.deepEqual(await Promise.all([first, waiting].map(async (each) => (await each).text())), [
      'once',
      'once',
    ])
  })

  test('a database that is blocked is 503, and not "in progress"', async () => {
    await using service = await serve('node', () => assert.fail('it is blocked'), { waitMs: 100 })
    database.exec('BEGIN IMMEDIATE')
    try {
      const response = await post(service, newKey())
      assert.equal(response.headers.get('retry-after'), '1')
      const [status, code, retryable] = await codeOf(response)
      assert.deepEqual([status, retryable], [503, true])
      assert.notEqual(code, 'IN_PROGRESS')
    } finally {
      database.exec('ROLLBACK')
    }
  })

  test('a transaction that was rolled back is told as that, and the next request does the work again', async () => {
    let calls = 0
    await using service = await serve('node', async ({ store }) => {
      const answer = { status: 201, body: `${++calls}` }
      if (calls > 1) return answer
      database.exec('BEGIN')
      await store(database, answer)
      database.exec('ROLLBACK')
      return answer
    })
    const key = newKey()
    const refused = await post(service, key)
    assert.equal(refused.headers.get('retry-after'), '1')
    const { code, detail } = (await refused.json()) as { code: string; detail: string }
    assert.deepEqual([refused.status, code], [503, 'NOT_COMMITTED'])
    assert.match(detail, /transaction with the answer was not committed/)
    assert.equal(await (await post(service, key)).text(), '2')
  })

  test('an answer that is too large is sent once, and the work is not done twice', async () => {
    let calls = 0
    const work: Work = () => {
      calls++
      return { status: 200, body: 'x'.repeat(1_100_000) }
    }
    for (const server of ['node', 'web'] as const) {
      await using service = await serve(server, work)
      const key = newKey()
      assert.equal((await (await post(service, key)).text()).length, 1_100_000)
      const again = await post(service, key)
      assert.equal(again.headers.get('retry-after'), null)
      assert.deepEqual(await codeOf(again), [409, 'TOO_LARGE_TO_REPEAT', false])
    }
    assert.equal(calls, 2)
  })

  test('store puts the answer into the transaction of the work, and 5xx is refused there', async () => {
    const charge = (work: (tx: SqliteDatabase) => Promise<void>) => async () => {
      database.exec('BEGIN IMMEDIATE')
      try {
        database.exec('INSERT INTO charges VALUES (100)')
        await work(database)
        database.exec('COMMIT')
      } catch (error) {
        database.exec('ROLLBACK')
        throw error
      }
    }
    let fails = true
    await using service = await serve('node', async ({ store, signal }) => {
      assert.equal(signal.aborted, false)
      const answer = { status: 201, body: 'charged' }
      await charge((tx) => store(tx, fails ? { status: 500 } : answer))()
      return answer
    })
    const key = newKey()
    assert.equal((await post(service, key)).status, 500)
    fails = false
    assert.equal(await (await post(service, key)).text(), 'charged')
    assert.equal(await (await post(service, key)).text(), 'charged')
    assert.deepEqual({ ...database.prepare('SELECT count(*) AS n FROM charges').get() }, { n: 1 })
  })

  test('bytes and empty answers come back as they were', async () => {
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index)
    await using service = await serve('node', ({ key }) =>
      key?.startsWith('empty') ? { status: 204 } : { status: 200, body: bytes },
    )
    for (let tries = 0; tries < 2; tries++) {
      assert.deepEqual(new Uint8Array(await (await post(service, 'bytes')).arrayBuffer()), bytes)
      assert.equal((await post(service, 'empty')).status, 204)
    }
    await using web = await serve('web', () => ({ status: 204 }))
    for (let tries = 0; tries < 2; tries++) assert.equal((await post(web, 'empty web')).status, 400)
    for (let tries = 0; tries < 2; tries++) assert.equal((await post(web, 'empty-web')).status, 204)
  })

  test('a body that is too long is 413 on a connection that goes on', async () => {
    for (const server of ['node', 'web'] as const) {
      await using service = await serve(server, () => ({ status: 200 }), { bodyBytes: 1_000 })
      assert.deepEqual(await codeOf(await post(service, newKey(), 'x'.repeat(100_000))), [
        413,
        'BODY_TOO_LARGE',
        false,
      ])
      assert.equal((await post(service, newKey(), 'x')).status, 200)
    }
  })

  test('required: false serves a request without a key each time, and the payload can be chosen', async () => {
    let calls = 0
    const options = { required: false, payload: () => ({ same: true }) }
    await using service = await serve(
      'node',
      ({ key, isTakeover }) => ({ status: 200, body: `${++calls} ${key} ${isTakeover}` }),
      options,
    )
    assert.equal(await (await post(service, null)).text(), '1 null false')
    assert.equal(await (await post(service, null)).text(), '2 null false')
    const key = newKey()
    assert.equal(await (await post(service, key, 'one')).text(), `3 ${key} false`)
    assert.equal(await (await post(service, key, 'another')).text(), `3 ${key} false`)
  })

  test('behind a body parser the parsed body counts, and one that was thrown away is an error', async () => {
    const app = express()
    const handle = idempotencyKey({ idempotent, scope: () => 'parsed' }, (_, { body }) => ({
      status: 200,
      body: JSON.stringify(body),
    }))
    app.post('/json', express.json(), handle)
    app.post('/gone', (request, response, next) => {
      request.on('end', () => void handle(request, response, next)).resume()
    })
    app.use(
      (error: { code?: string }, _q: unknown, response: express.Response, _n: unknown) =>
        void response.status(500).send(error.code),
    )
    const server = app.listen(0, '127.0.0.1')
    await new Promise((resolve) => server.once('listening', resolve))
    const url = `http://127.0.0.1:${(server.address() as { port: number }).port}`
    const send = (path: string, body: string, key: string) =>
      fetch(url + path, {
        method: 'POST',
        body,
        headers: { 'content-type': 'application/json', 'idempotency-key': key },
      })
    try {
      const key = newKey()
      assert.equal(await (await send('/json', '{"a":1,"b":2}', key)).text(), '{"a":1,"b":2}')
      assert.equal(await (await send('/json', '{"b":2, "a":1}', key)).text(), '{"a":1,"b":2}')
      assert.equal((await send('/json', '{"a":1}', key)).status, 422)
      assert.equal(await (await send('/gone', '{}', newKey())).text(), 'INVALID_ARGUMENT')
    } finally {
      server.closeAllConnections()
      server.close()
    }
  })

  test("a scope that is empty, and a handler's own errors stay with the server", async () => {
    const handle = idempotencyKeyWeb({ idempotent, scope: () => '' }, () => new Response())
    const request = () =>
      new Request('http://any/', { method: 'POST', headers: { 'idempotency-key': newKey() } })
    await assert.rejects(handle(request()), { code: 'INVALID_ARGUMENT' })
    const { AcquireTimeoutError } = await import('../base/errors.ts')
    const busy = idempotencyKeyWeb({ idempotent, scope: () => 's' }, () => {
      throw new AcquireTimeoutError('a lock of the handler', 1)
    })
    await assert.rejects(busy(request()), { code: 'ACQUIRE_TIMEOUT' })
  })

  test.each<[string, object]>([
    ['an unknown option', { idempotent, scope: () => 's', waitMS: 3 }],
    ['no idempotent', { scope: () => 's' }],
    ['no scope', { idempotent }],
    ['a payload that is no function', { idempotent, scope: () => 's', payload: 1 }],
    ['a limit that is none', { idempotent, scope: () => 's', bodyBytes: 0 }],
    ['a required that is no boolean', { idempotent, scope: () => 's', required: 'yes' }],
    ['stored headers that are no list', { idempotent, scope: () => 's', storedHeaders: 'location' }],
    ['stored headers that are no text', { idempotent, scope: () => 's', storedHeaders: [1] }],
    ['a ttlMs of 0', { idempotent, scope: () => 's', ttlMs: 0 }],
    ['a keepMs that is no number', { idempotent, scope: () => 's', keepMs: '1d' }],
    ['a waitMs below 0', { idempotent, scope: () => 's', waitMs: -1 }],
  ])('INVALID_ARGUMENT for %s', (_, options) => {
    assert.throws(() => idempotencyKeyWeb(options as never, () => new Response()), {
      code: 'INVALID_ARGUMENT',
    })
  })

  test.each<[string, string | undefined]>([
    ['"k"', 'k'],
    ['k', 'k'],
    ['"a \\"b\\" \\\\"', 'a "b" \\'],
    ['8e03978e-40d5-43e8-bc93-6894a57f9324', '8e03978e-40d5-43e8-bc93-6894a57f9324'],
    ['', undefined],
    ['""', undefined],
    ['"k', undefined],
    ['k"', undefined],
    ['"k", "l"', undefined],
    ['k,l', undefined],
    ['"k";a=1', undefined],
    ['"\\k"', undefined],
    ['schlüssel', undefined],
    ['x'.repeat(256), undefined],
    [`"${'x'.repeat(255)}"`, 'x'.repeat(255)],
  ])('the key of %s', (header, key) => {
    assert.equal(keyIn(header), key)
  })
})
