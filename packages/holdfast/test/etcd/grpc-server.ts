/**
 * An HTTP/2 server in this process for tests of a client. What it does with a request is up to the test. It knows the frames of
 * gRPC, and nothing of etcd.
 */
import { once } from 'node:events'
import {
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Server,
  type Socket,
} from 'node:net'

export interface Exchange {
  readonly stream: ServerHttp2Stream
  readonly path: string
  readonly headers: IncomingHttpHeaders
  /** Messages of the request, without their heads. Grows. */
  readonly messages: Buffer[]
  /** The way of the bytes between client and server. */
  readonly link: Link
}

/** Bytes to the client pass through `toClient`, which may change, keep or lose them. */
export class Link {
  readonly client: Socket
  readonly server: Socket
  toClient: (bytes: Buffer) => void = (bytes) => this.client.write(bytes)

  constructor(client: Socket, port: number) {
    this.client = client
    this.server = connect(port, '127.0.0.1')
    client.on('data', (bytes) => this.server.write(bytes))
    this.server.on('data', (bytes) => this.toClient(bytes))
    for (const [one, other] of [
      [client, this.server],
      [this.server, client],
    ] as const) {
      one.on('error', () => {})
      one.on('close', () => other.destroy())
    }
  }

  reset(): void {
    this.client.resetAndDestroy()
  }
}

export class GrpcServer implements AsyncDisposable {
  readonly url: string
  readonly #front: Server
  readonly #back: Http2Server
  readonly #links: Set<Link>
  readonly #sessions = new Set<ServerHttp2Session>()
  /** Counted since the start. */
  connections = 0

  private constructor(front: Server, back: Http2Server, links: Set<Link>) {
    this.#front = front
    this.#back = back
    this.#links = links
    this.url = `http://127.0.0.1:${(front.address() as AddressInfo).port}`
    front.on('connection', () => this.connections++)
    back.on('session', (session) => this.#sessions.add(session))
  }

  /** `onConnection` is called before the first byte. */
  static async start(
    onRequest: (exchange: Exchange) => void,
    onConnection: (link: Link) => void = () => {},
  ): Promise<GrpcServer> {
    const back = createServer()
    const links = new Set<Link>()
    const linkOf = (session: ServerHttp2Session | undefined) =>
      [...links].find(({ server }) => server.localPort === session?.socket.remotePort)
    back.on('sessionError', () => {})
    back.on('stream', (stream, headers) => {
      stream.on('error', () => {})
      const link = linkOf(stream.session as ServerHttp2Session)
      if (link === undefined) return
      const messages = messagesOf(stream)
      onRequest({ stream, path: String(headers[':path']), headers, messages, link })
    })
    back.listen(0, '127.0.0.1')
    await once(back, 'listening')
    const front = createTcpServer((client) => {
      const link = new Link(client, (back.address() as AddressInfo).port)
      links.add(link)
      client.once('close', () => links.delete(link))
      onConnection(link)
    })
    front.listen(0, '127.0.0.1')
    await once(front, 'listening')
    return new GrpcServer(front, back, links)
  }

  get open(): number {
    // A socket that was reset does not always tell that it is closed.
    return [...this.#links].filter(({ client }) => !client.destroyed).length
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const link of this.#links) link.client.destroy()
    for (const session of this.#sessions) session.destroy()
    const closed = [this.#front, this.#back].map((server) => new Promise((resolve) => server.close(resolve)))
    await Promise.all(closed)
  }
}

function messagesOf(stream: ServerHttp2Stream): Buffer[] {
  const messages: Buffer[] = []
  let rest: Buffer = Buffer.alloc(0)
  stream.on('data', (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk])
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1)
      messages.push(rest.subarray(5, end))
      rest = rest.subarray(end)
    }
  })
  return messages
}

/** A gRPC message with its head. */
export function frame(message: Uint8Array, isCompressed = false, length = message.length): Buffer {
  const head = Buffer.alloc(5)
  head[0] = isCompressed ? 1 : 0
  head.writeUInt32BE(length, 1)
  return Buffer.concat([head, message])
}

export const GRPC = { ':status': 200, 'content-type': 'application/grpc' }

/** Headers, bytes, trailers. */
export function respond(
  stream: ServerHttp2Stream,
  bytes: Uint8Array,
  trailers: Record<string, string> = { 'grpc-status': '0' },
): void {
  if (stream.destroyed || stream.closed) return
  stream.respond(GRPC, { waitForTrailers: true })
  stream.on('wantTrailers', () => stream.sendTrailers(trailers))
  stream.end(bytes)
}

/** Only trailers: a refusal. */
export function refuse(stream: ServerHttp2Stream, status: number | string, message = ''): void {
  if (stream.destroyed || stream.closed) return
  stream.respond({ ...GRPC, 'grpc-status': String(status), 'grpc-message': message }, { endStream: true })
}
