/**
 * Servers that treat each connection and each request badly, by a seed. Free of etcd: the test says what a good answer is, and is told
 * of every request whether it counts as served.
 */
import type { ServerHttp2Stream } from 'node:http2'
import type { Random } from '../../src/base/ids.ts'
import { type Exchange, frame, GRPC, GrpcServer, type Link, refuse, respond } from './grpc-server.ts'

export interface Tortured {
  /** A good answer to one message of a request. */
  readonly answer: (path: string, message: Buffer) => Buffer
  /** A request that stays open: each of its messages is answered. */
  readonly isStream: (path: string) => boolean
  /** What a stream is told besides, now. `answered`: so many of its messages were answered. */
  readonly untold: (messages: readonly Buffer[], answered: number) => readonly Buffer[]
  /** The server has acted on the request, whatever the client hears of it. Called once for each, before anything is sent. */
  readonly served: (exchange: Exchange) => void
  readonly random: Random
}

type Treatment = (exchange: Exchange, answer: Buffer, random: Random) => void

const draw = (random: Random, limit: number) => Math.floor(random.fraction() * limit)
const bytesOf = (random: Random, length: number) =>
  Buffer.from(Array.from({ length }, () => draw(random, 256)))
const isOver = ({ destroyed, closed }: ServerHttp2Stream) => destroyed || closed
const soon = (work: () => void) => void setTimeout(work, 2)
/** So long that a client which waits for its end has no end. */
const FOREVER = 2_000

function repeat(stream: ServerHttp2Stream, work: () => void, times = FOREVER): void {
  if (times === 0 || isOver(stream)) return
  work()
  soon(() => repeat(stream, work, times - 1))
}

function begin(stream: ServerHttp2Stream, bytes: Buffer): void {
  if (isOver(stream)) return
  stream.respond(GRPC)
  stream.write(bytes)
}

const half = (bytes: Buffer, random: Random) => bytes.subarray(0, draw(random, bytes.length))

/** The client hears of them that the request was not served, and it was not. */
const refusals: Readonly<Record<string, Treatment>> = {
  'stream refused': ({ stream }) => stream.close(7),
  'status of a refusal': ({ stream }, _answer, random) =>
    refuse(stream, [3, 5, 7, 8, 9][draw(random, 5)] ?? 3, '%'),
}

/** The request was served, and something goes wrong with its answer. Without an id, `goaway` names the last stream that has come. */
const treatments: Readonly<Record<string, Treatment>> = {
  silence: () => {},
  'silence after headers': ({ stream }) => stream.respond(GRPC),
  'silence in a message': ({ stream }, answer, random) => begin(stream, half(frame(answer), random)),
  'silence after the message': ({ stream }, answer) => begin(stream, frame(answer)),
  dribble: ({ stream }, answer) => {
    const bytes = frame(answer, false, answer.length + FOREVER)
    let at = 0
    begin(stream, bytes.subarray(0, 1))
    repeat(stream, () => stream.write(Buffer.from([bytes[++at] ?? 0])))
  },
  reset: ({ stream }, _answer, random) => stream.close([0, 1, 2, 3, 5, 8, 11, 13][draw(random, 8)]),
  'reset after headers': ({ stream }) => {
    stream.respond(GRPC)
    soon(() => stream.close(7))
  },
  'reset in a message': ({ stream }, answer, random) => {
    begin(stream, half(frame(answer), random))
    soon(() => stream.close(2))
  },
  'end in a message': ({ stream }, answer, random) => respond(stream, half(frame(answer), random)),
  'no trailers': ({ stream }, answer) => {
    begin(stream, frame(answer))
    stream.end()
  },
  'status that is none': ({ stream }, answer, random) =>
    respond(stream, frame(answer), {
      'grpc-status': ['', 'OK', '-1', '1e9', '0x0', '00000'][draw(random, 6)] ?? '',
    }),
  'status of a failure': ({ stream }, _answer, random) =>
    refuse(stream, [1, 2, 4, 10, 13, 14, 15, 99][draw(random, 8)] ?? 2, '%E0%A4%A %'),
  'no message': ({ stream }) => respond(stream, Buffer.alloc(0)),
  'empty message': ({ stream }) => respond(stream, frame(Buffer.alloc(0))),
  'two messages': ({ stream }, answer) => respond(stream, Buffer.concat([frame(answer), frame(answer)])),
  'messages without end': ({ stream }, answer) => {
    begin(stream, frame(answer))
    repeat(stream, () => stream.write(frame(answer)))
  },
  'compressed message': ({ stream }, answer) => respond(stream, frame(answer, true)),
  'message of 4 GiB': ({ stream }, answer) => respond(stream, frame(answer, false, 2 ** 32 - 1)),
  garbage: ({ stream }, _answer, random) => respond(stream, bytesOf(random, 1 + draw(random, 200))),
  'garbage in a message': ({ stream }, _answer, random) =>
    respond(stream, frame(Buffer.concat([Buffer.from([7]), bytesOf(random, draw(random, 200))]))),
  'headers without end': ({ stream }) =>
    repeat(
      stream,
      () => stream.headersSent || stream.additionalHeaders({ ':status': 103, link: 'x'.repeat(500) }),
    ),
  'large headers': ({ stream }, answer) =>
    respond(
      stream,
      frame(answer),
      Object.fromEntries(Array.from({ length: 90 }, (_, n) => [`x-${n}`, 'y'.repeat(700)])),
    ),
  'web page': ({ stream }) => {
    stream.respond({ ':status': 502, 'content-type': 'text/html' })
    stream.end('<html>')
  },
  'the server goes': ({ stream }, answer) => {
    goAway(stream)
    respond(stream, frame(answer))
  },
  'the server goes, silently': ({ stream }) => goAway(stream),
  'the server fails': ({ stream }, _answer, random) => goAway(stream, draw(random, 14)),
  'connection closed': ({ link }) => link.client.end(),
  'connection reset': ({ link }) => link.reset(),
  'connection cut in the answer': ({ stream, link }, answer, random) => {
    const left = draw(random, 60)
    link.toClient = (bytes) => link.client.end(bytes.subarray(0, left))
    respond(stream, frame(answer))
  },
  'connection frozen': ({ link }) => freeze(link),
  'connection frozen after the answer': ({ stream, link }, answer) => {
    respond(stream, frame(answer))
    soon(() => freeze(link))
  },
  'garbage on the connection': ({ stream, link }, answer, random) => {
    link.client.write(bytesOf(random, 1 + draw(random, 300)))
    respond(stream, frame(answer))
  },
  'answer byte by byte': ({ stream, link }, answer) => {
    link.toClient = (bytes) => {
      for (const byte of bytes) link.client.write(Buffer.from([byte]))
    }
    respond(stream, frame(answer))
  },
}

/** Streams that were treated so are open, and no message on them is cut. They may be told more. */
const staysWhole = new Set(['silence after the message', 'messages without end'])

/** Sessions that serve no further stream. Node would still pass on what arrives meanwhile. */
const gone = new WeakSet<object>()

function goAway({ session }: ServerHttp2Stream, code = 0): void {
  if (session === undefined) return
  session.goaway(code)
  gone.add(session)
}

function freeze(link: Link): void {
  link.toClient = () => {}
}

const arrivals: readonly ((link: Link, random: Random) => void)[] = [
  (link) => link.reset(),
  (link) => link.client.end(),
  (link) => freeze(link),
  (link, random) => link.client.end(bytesOf(random, 100)),
  (link) => link.client.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
  (link, random) => {
    const left = draw(random, 40)
    link.toClient = (bytes) => link.client.end(bytes.subarray(0, left))
  },
]

export const names = [...Object.keys(refusals), ...Object.keys(treatments)]

/** How often a connection, or a request, is treated badly. */
const [BAD_ARRIVALS, BAD_REQUESTS] = [0.15, 0.6]

export class TortureServer {
  readonly server: GrpcServer
  /** The treatments that were given. */
  readonly given: Set<string>
  readonly #mood: { isGood: boolean }
  /** Tells each stream that is open and whole what it was not told. */
  readonly #streams: Set<() => void>

  private constructor(
    server: GrpcServer,
    given: Set<string>,
    mood: { isGood: boolean },
    streams: Set<() => void>,
  ) {
    this.server = server
    this.given = given
    this.#mood = mood
    this.#streams = streams
  }

  static async start({ answer, isStream, untold, served, random }: Tortured): Promise<TortureServer> {
    const mood = { isGood: false }
    const streams = new Set<() => void>()
    const tellMore = ({ stream, messages }: Exchange, answered: () => number) => {
      const tell = () => {
        if (isOver(stream)) streams.delete(tell)
        else for (const message of untold(messages, answered())) stream.write(frame(message))
      }
      streams.add(tell)
      tell()
      return tell
    }
    const given = new Set<string>()
    // One after another, so that every run has all of them.
    let next = draw(random, names.length)
    const onRequest = (exchange: Exchange) => {
      if (gone.has(exchange.stream.session ?? exchange)) return
      const isBad = !mood.isGood && random.fraction() < BAD_REQUESTS
      const name = isBad ? (names[next++ % names.length] ?? '') : 'answer'
      given.add(name)
      const refusal = refusals[name]
      if (refusal !== undefined) return refusal(exchange, Buffer.alloc(0), random)
      served(exchange)
      const [first = Buffer.alloc(0)] = exchange.messages
      const good = answer(exchange.path, first)
      const treat = treatments[name]
      if (treat !== undefined) treat(exchange, good, random)
      else if (isStream(exchange.path)) answerAll(exchange, answer, tellMore)
      else respond(exchange.stream, frame(good))
      if (isStream(exchange.path) && staysWhole.has(name)) tellMore(exchange, () => 1)
    }
    const onConnection = (link: Link) => {
      if (!mood.isGood && random.fraction() < BAD_ARRIVALS)
        arrivals[draw(random, arrivals.length)]?.(link, random)
    }
    const whole = (exchange: Exchange) => whenAsked(exchange, () => onRequest(exchange))
    return new TortureServer(await GrpcServer.start(whole, onConnection), given, mood, streams)
  }

  /** There is something that streams were not told. */
  tell(): void {
    for (const tell of this.#streams) tell()
  }

  /** New connections and requests are treated well from now on. */
  heal(): void {
    this.#mood.isGood = true
  }
}

function answerAll(
  exchange: Exchange,
  answer: Tortured['answer'],
  tellMore: (exchange: Exchange, answered: () => number) => () => void,
): void {
  const { stream, path, messages } = exchange
  let answered = 0
  const answerMore = () => {
    for (const message of messages.slice(answered)) {
      if (!isOver(stream)) stream.write(frame(answer(path, message)))
      answered++
    }
  }
  stream.respond(GRPC)
  answerMore()
  const tell = tellMore(exchange, () => answered)
  stream.on('data', () => {
    answerMore()
    tell()
  })
}

/** The first message is there. */
function whenAsked({ stream, messages }: Exchange, then: () => void): void {
  const look = () => {
    if (messages.length === 0 || isOver(stream)) return
    stream.off('data', look)
    then()
  }
  stream.on('data', look)
}
