/**
 * Members that treat each connection and each request badly, by a seed. They share their sessions and what was served. What a request
 * says is its number: the last digits of its path.
 */
import { createServer, type Server, type Socket } from 'node:net'
import type { Random } from '../../src/base/ids.ts'
import { frame } from '../../src/engines/zookeeper/client/jute.ts'
import { passwordOf } from '../../src/engines/zookeeper/client/password.ts'

const TIMEOUT_MS = 6_000
const NO_NODE = -101

/** A request as the server has read it. */
export interface Received {
  readonly xid: number
  readonly code: number
  readonly number: number
  readonly parts: number
}

/** What the members have in common. */
export class World {
  readonly sessions = new Set<bigint>()
  /** How often each request was served. */
  readonly served = new Map<number, number>()
  readonly given = new Set<string>()
  readonly random: Random
  isGood = false
  zxid = 1n
  #nextId = 1n
  #next = 0

  constructor(random: Random) {
    this.random = random
    this.#next = this.draw(names.length)
  }

  draw(limit: number): number {
    return Math.floor(this.random.fraction() * limit)
  }

  newSession(): bigint {
    this.sessions.add(++this.#nextId)
    return this.#nextId
  }

  serve(number: number): void {
    this.zxid++
    this.served.set(number, (this.served.get(number) ?? 0) + 1)
  }

  /** One after another, so that every run has all of them. */
  nextTreatment(): string {
    const name = names[this.#next++ % names.length] ?? ''
    this.given.add(name)
    return name
  }
}

const stat = (number: number) => [BigInt(number), 1n, 0n, 0n, number, 0, 0, 0n, 0, 0, 1n]
const SET_DATA = 5
const codes = {
  delete: 2,
  exists: 3,
  setData: SET_DATA,
  getChildren: 12,
  multi: 14,
  setWatches: 105,
}

function bodyOf({ code, number, parts }: Received): readonly (number | bigint | string | boolean)[] {
  if (code === codes.exists || code === SET_DATA) return stat(number)
  if (code === codes.getChildren) return [2, 'a', 'b', ...stat(number)]
  if (code !== codes.multi) return []
  return [...Array.from({ length: parts }, () => [SET_DATA, false, 0, ...stat(number)]).flat(), -1, true, -1]
}

const good = (received: Received, zxid: bigint) => frame([received.xid, zxid, 0, ...bodyOf(received)])
const refusal = (received: Received, zxid: bigint, error: number) => frame([received.xid, zxid, error])

interface Exchange {
  readonly socket: Socket
  readonly received: Received
  readonly world: World
  readonly answer: Buffer
}

type Treatment = (exchange: Exchange) => void
const half = (bytes: Buffer, world: World) => bytes.subarray(0, world.draw(bytes.length))
const garbage = (world: World, length: number) => Buffer.from(Array.from({ length }, () => world.draw(256)))
const soon = (work: () => void) => void setTimeout(work, 2)

/** Nothing more is read or answered on these. */
const frozen = new WeakSet<Socket>()

/** Nothing else comes on this connection. */
function dribble(socket: Socket, bytes: Buffer, at = 0): void {
  frozen.add(socket)
  if (socket.destroyed || at >= bytes.length) return
  socket.write(bytes.subarray(at, at + 1))
  soon(() => dribble(socket, bytes, at + 1))
}

/** The client hears that the request was not served, and it was not. */
const refusals: Readonly<Record<string, Treatment>> = {
  'session moved': ({ socket, received, world }) => socket.write(refusal(received, world.zxid, -118)),
  throttled: ({ socket, received, world }) => socket.write(refusal(received, world.zxid, -127)),
  'bad arguments': ({ socket, received, world }) => socket.write(refusal(received, world.zxid, -8)),
  'no rights': ({ socket, received, world }) => socket.write(refusal(received, world.zxid, -102)),
  'unknown request': ({ socket, received, world }) => socket.write(refusal(received, world.zxid, -6)),
}

/** The request was served, and something goes wrong with its answer. */
const treatments: Readonly<Record<string, Treatment>> = {
  silence: () => {},
  'half an answer, then silence': ({ socket, answer, world }) => {
    socket.write(half(answer, world))
    frozen.add(socket)
  },
  'half an answer, then the end': ({ socket, answer, world }) => socket.end(half(answer, world)),
  'an answer byte by byte': ({ socket, answer }) => dribble(socket, answer),
  'a long answer that dribbles': ({ socket, received }) =>
    dribble(socket, frame([received.xid, 1n, 0, 'x'.repeat(5_000)])),
  'the connection is reset': ({ socket }) => socket.resetAndDestroy(),
  'the connection is closed': ({ socket }) => socket.end(),
  'a length of 2 GiB': ({ socket }) => socket.write(Buffer.from([127, 255, 255, 255])),
  'a negative length': ({ socket }) => socket.write(Buffer.from([255, 255, 255, 255])),
  'an empty frame': ({ socket }) => socket.write(Buffer.alloc(4)),
  'garbage in a frame': ({ socket, world }) => {
    const bytes = garbage(world, 1 + world.draw(200))
    socket.write(Buffer.concat([frame([bytes]).subarray(4), bytes]))
  },
  garbage: ({ socket, world }) => {
    socket.write(garbage(world, 1 + world.draw(200)))
    frozen.add(socket)
  },
  'another number': ({ socket, received, world }) =>
    socket.write(good({ ...received, xid: 77_777 }, world.zxid)),
  'no body': ({ socket, received, world }) =>
    socket.write(received.code === codes.delete ? frame([1]) : frame([received.xid, world.zxid, 0])),
  'a body that is cut': ({ socket, answer }) => {
    const cut = Buffer.from(answer.subarray(0, answer.length - 3))
    cut.writeInt32BE(cut.length - 4)
    socket.write(cut)
  },
  'a list of 2^31 items': ({ socket, received, world }) =>
    socket.write(frame([received.xid, world.zxid, 0, 2 ** 31 - 1, 'a'])),
  'an error that is unknown': ({ socket, received, world }) =>
    socket.write(refusal(received, world.zxid, [-1, -3, -4, -5, -7, -13, -99, 5][world.draw(8)] ?? -1)),
  'an event that is none': ({ socket }) => socket.write(frame([-1, -1n, 0, 2])),
  'events of nobody, then the answer': ({ socket, answer }) => {
    for (const kind of [1, 2, 3, 4, 7, 99]) socket.write(frame([-1, -1n, 0, kind, 3, '/other']))
    socket.write(answer)
  },
  'a frozen connection': ({ socket }) => void frozen.add(socket),
  'frozen after the answer': ({ socket, answer }) => {
    socket.write(answer)
    frozen.add(socket)
  },
}

/** What becomes of a connection, before or in place of the answer to its ConnectRequest. */
const arrivals: Readonly<Record<string, (socket: Socket, world: World, answer: Buffer) => void>> = {
  'reset at once': (socket) => socket.resetAndDestroy(),
  'closed at once': (socket) => socket.end(),
  'silent from the start': (socket) => void frozen.add(socket),
  'garbage at once': (socket, world) => socket.end(garbage(world, 100)),
  'a web server': (socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
  'half a ConnectReply': (socket, world, answer) => socket.write(half(answer, world)),
  'a ConnectReply that is cut': (socket) => socket.write(frame([0, TIMEOUT_MS])),
  'a read-only member': (socket, _world, answer) => {
    const readOnly = Buffer.from(answer)
    readOnly[readOnly.length - 1] = 1
    socket.write(readOnly)
  },
  'an attached session, then the end': (socket, _world, answer) => socket.end(answer),
  'another session': (socket, world) => {
    const id = world.newSession()
    socket.write(frame([0, TIMEOUT_MS, id, passwordOf(id), false]))
  },
}

export const names = [...Object.keys(refusals), ...Object.keys(treatments)]
/** How often a connection, or a request, is treated badly. */
const [BAD_ARRIVALS, BAD_REQUESTS] = [0.2, 0.15]

export class TortureMember implements AsyncDisposable {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(server: Server, world: World) {
    this.#server = server
    server.on('connection', (socket) => {
      this.#sockets.add(socket)
      socket.on('close', () => this.#sockets.delete(socket))
      socket.on('error', () => {})
      serve(socket, world)
    })
  }

  static async start(world: World): Promise<TortureMember> {
    const server = createServer({ noDelay: true })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return new TortureMember(server, world)
  }

  get host(): string {
    const address = this.#server.address()
    return `127.0.0.1:${typeof address === 'object' ? address?.port : 0}`
  }

  get open(): number {
    return this.#sockets.size
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

function serve(socket: Socket, world: World): void {
  let isConnected = false
  onPackets(socket, (packet) => {
    if (!socket.writable || frozen.has(socket)) return
    if (isConnected) exchange(socket, world, packet)
    else connect(socket, world, packet)
    isConnected = true
  })
}

/** Calls back with each packet of the client, without its length. */
export function onPackets(socket: Socket, onPacket: (packet: Buffer) => void): void {
  let bytes = Buffer.alloc(0)
  socket.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk])
    while (bytes.length >= 4 && bytes.length >= 4 + bytes.readInt32BE(0)) {
      const end = 4 + bytes.readInt32BE(0)
      const packet = bytes.subarray(4, end)
      bytes = bytes.subarray(end)
      onPacket(packet)
    }
  })
}

function connect(socket: Socket, world: World, packet: Buffer): void {
  const asked = packet.readBigInt64BE(16)
  const id = asked === 0n ? world.newSession() : asked
  const isThere = world.sessions.has(id)
  const answer = isThere
    ? frame([0, TIMEOUT_MS, id, passwordOf(id), false])
    : frame([0, 0, 0n, Buffer.alloc(16), false])
  const isBad = !world.isGood && world.random.fraction() < BAD_ARRIVALS
  const all = Object.values(arrivals)
  if (isBad) all[world.draw(all.length)]?.(socket, world, answer)
  else socket.write(answer)
}

function exchange(socket: Socket, world: World, packet: Buffer): void {
  const [xid, code] = [packet.readInt32BE(0), packet.readInt32BE(4)]
  const numbers = [...packet.toString('latin1').matchAll(/\/n(\d+)/g)].map(([, number]) => Number(number))
  const received = { xid, code, number: numbers[0] ?? 0, parts: numbers.length }
  const isBad = !world.isGood && world.random.fraction() < BAD_REQUESTS
  const name = isBad ? world.nextTreatment() : ''
  const refuse = refusals[name]
  if (refuse !== undefined) {
    refuse({ socket, received, world, answer: Buffer.alloc(0) })
    return
  }
  if (received.number > 0 && code !== codes.setWatches) world.serve(received.number)
  const answer =
    received.code === codes.delete ? refusal(received, world.zxid, NO_NODE) : good(received, world.zxid)
  const treat = treatments[name]
  if (treat === undefined) socket.write(answer)
  else treat({ socket, received, world, answer })
}
