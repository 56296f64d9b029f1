/**
 * Servers that treat each connection and each request badly, by a seed, over HTTP/1.1. Free of Consul: the test says what a good answer
 * is, and is told of every request whether it counts as served.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Random } from '../../src/base/ids.ts'

export interface Answer {
  readonly status: number
  readonly body: string
  readonly headers?: Readonly<Record<string, string>>
}

export interface Tortured {
  readonly answer: (path: string, body: string) => Answer
  /** The server has acted on the request, whatever the client hears of it. Called once for each, before anything is sent. */
  readonly served: (path: string, body: string) => void
  readonly random: Random
}

interface Exchange {
  readonly response: ServerResponse
  readonly socket: Socket
  readonly good: Answer
  readonly random: Random
}

const draw = (random: Random, limit: number) => Math.floor(random.fraction() * limit)
const bytesOf = (random: Random, length: number) =>
  Buffer.from(Array.from({ length }, () => draw(random, 256)))
const soon = (work: () => void) => void setTimeout(work, 2)
const half = (text: string, random: Random) => text.slice(0, draw(random, text.length))
const lengthOf = (text: string) => String(Buffer.byteLength(text))

function answer(response: ServerResponse, { status, body, headers = {} }: Answer): void {
  response.writeHead(status, { ...headers, 'content-length': lengthOf(body) }).end(body)
}

function repeat(socket: Socket, work: () => void, times = 2_000): void {
  if (times === 0 || socket.destroyed) return
  work()
  soon(() => repeat(socket, work, times - 1))
}

/** Other bodies with status 200. */
const body =
  (text: (good: string, random: Random) => string) =>
  ({ response, good, random }: Exchange) =>
    answer(response, { ...good, status: 200, body: text(good.body, random) })
const status =
  (code: number, text = 'no') =>
  ({ response }: Exchange) =>
    answer(response, { status: code, body: text })
const raw =
  (text: string) =>
  ({ socket }: Exchange) =>
    void socket.write(text)

/** The client hears of them that the request was not served, and it was not. */
const refusals: Readonly<Record<string, (exchange: Exchange) => void>> = {
  'no leader': status(500, 'No cluster leader'),
  'leader not reached': status(500, 'rpc error getting client: failed to get conn: dial tcp: refused'),
  'too many connections': ({ response, socket }) => {
    answer(response, { status: 429, body: 'too many', headers: { connection: 'close' } })
    socket.end()
  },
  'too large': status(413, 'Request body too large'),
  'no such path': status(404, 'not found'),
}

/** The request was served, and something goes wrong with its answer. */
const treatments: Readonly<Record<string, (exchange: Exchange) => void>> = {
  silence: () => {},
  'silence after headers': ({ response }) =>
    response.writeHead(200, { 'content-length': '100' }).flushHeaders(),
  'silence in the body': ({ response, good, random }) => {
    response.writeHead(200, { 'content-length': lengthOf(good.body) }).write(half(good.body, random) || ' ')
  },
  dribble: ({ response, socket }) => {
    response.writeHead(200)
    repeat(socket, () => response.write(' '))
  },
  'reset without an answer': ({ socket }) => socket.resetAndDestroy(),
  'closed without an answer': ({ socket }) => socket.end(),
  'reset in the body': ({ response, socket, good, random }) => {
    response.writeHead(200, { 'content-length': lengthOf(good.body) }).write(half(good.body, random) || ' ')
    soon(() => socket.resetAndDestroy())
  },
  'end in the body': ({ response, socket, good, random }) => {
    response.writeHead(200, { 'content-length': lengthOf(good.body) }).write(half(good.body, random) || ' ')
    soon(() => socket.end())
  },
  'failure that says nothing': status(500, 'rpc error making call: EOF'),
  'leader lost': status(500, 'leadership lost while committing log'),
  'web page': status(502, '<html>'),
  redirect: ({ response }) => answer(response, { status: 302, body: '', headers: { location: '/' } }),
  'no content': ({ response }) => void response.writeHead(204).end(),
  'conflict that says nothing': status(409, '{"Results":null,"Errors":null}'),
  'conflict of another kind': status(409, '{"Errors":[{"OpIndex":"0","What":7}]}'),
  'body that is empty': body(() => ''),
  'body that is null': body(() => 'null'),
  'body that is cut': body((good, random) => half(good, random)),
  'body of another shape': body(
    (_good, random) => ['[[]]', '{}', '7', '"x"', '[null]', '{"Results":[{}]}'][draw(random, 6)] ?? '',
  ),
  'entries without keys': body(() => '{"Results":[{"KV":{"Value":"eA=="}}],"Errors":null}'),
  'entries with large numbers': body((good) => good.replaceAll(/Index":\d+/g, 'Index":1e300')),
  'index that is none': ({ response, good }) =>
    answer(response, { ...good, headers: { 'x-consul-index': '0x7, -1' } }),
  'bytes in the body': ({ response, random }) => void response.writeHead(200).end(bytesOf(random, 300)),
  'bytes after the answer': ({ response, socket, good, random }) => {
    answer(response, good)
    soon(() => socket.write(bytesOf(random, 100)))
  },
  'garbage for an answer': ({ socket, random }) => void socket.write(bytesOf(random, 200)),
  'another protocol': raw('SSH-2.0-OpenSSH_9.2p1\r\n'),
  'a version that is none': raw('HTTP/9.9 200 OK\r\n\r\n'),
  'headers without end': ({ socket }) => {
    socket.write('HTTP/1.1 200 OK\r\n')
    repeat(socket, () => socket.write(`x-${Math.random()}: ${'y'.repeat(500)}\r\n`))
  },
  'hints without end': ({ socket }) => repeat(socket, () => socket.write('HTTP/1.1 103 Early Hints\r\n\r\n')),
  'other protocol is offered': raw(
    'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n',
  ),
  'chunks that are none': raw('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n'),
  'two lengths': raw('HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}'),
  'length that is negative': raw('HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}'),
  'answer byte by byte': ({ socket, good }) => {
    const whole = `HTTP/1.1 ${good.status} OK\r\ncontent-length: ${lengthOf(good.body)}\r\n\r\n${good.body}`
    for (let at = 0; at < whole.length; at += 7) setTimeout(() => socket.write(whole.slice(at, at + 7)), at)
  },
}

const arrivals: readonly ((socket: Socket, random: Random) => void)[] = [
  (socket) => socket.resetAndDestroy(),
  (socket) => socket.end(),
  (socket) => socket.pause(),
  (socket, random) => socket.end(bytesOf(random, 100)),
]

export const names = [...Object.keys(refusals), ...Object.keys(treatments)]

/** How often a connection, or a request, is treated badly. */
const [BAD_ARRIVALS, BAD_REQUESTS] = [0.1, 0.6]

export class TortureServer implements AsyncDisposable {
  readonly url: string
  /** The treatments that were given. */
  readonly given = new Set<string>()
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isGood = false

  private constructor(server: Server) {
    this.#server = server
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  }

  static async start({ answer: answerOf, served, random }: Tortured): Promise<TortureServer> {
    // One after another, so that every run has all of them.
    let next = draw(random, names.length)
    const server = createServer({ keepAliveTimeout: 60_000 }, async (request, response) => {
      const given = await bodyOf(request)
      const path = request.url ?? ''
      const good = answerOf(path, given)
      if (path === '/v1/status/leader') return answer(response, good)
      const isBad = !tortured.#isGood && random.fraction() < BAD_REQUESTS
      const name = isBad ? (names[next++ % names.length] ?? '') : 'answer'
      tortured.given.add(name)
      const exchange = { response, socket: request.socket, good, random }
      const refusal = refusals[name]
      if (refusal !== undefined) return refusal(exchange)
      served(path, given)
      const treat = treatments[name]
      if (treat === undefined) answer(response, good)
      else treat(exchange)
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const tortured = new TortureServer(server)
    server.on('connection', (socket) => {
      tortured.#sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => tortured.#sockets.delete(socket))
      if (!tortured.#isGood && random.fraction() < BAD_ARRIVALS)
        arrivals[draw(random, arrivals.length)]?.(socket, random)
    })
    server.on('clientError', (_error, socket) => socket.destroy())
    return tortured
  }

  get open(): number {
    return this.#sockets.size
  }

  /** New connections and requests are treated well from now on. */
  heal(): void {
    this.#isGood = true
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}
