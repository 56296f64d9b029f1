// The least that speaks to a ZooKeeper server: one session on one connection, which is not made again when it breaks,
// so that a fault shows as it is.

import { connect, type Socket } from 'node:net'

export interface ZooKeeperClient extends Disposable {
  readonly sessionTimeoutMs: number
  create(path: string, data?: string, options?: { ephemeral?: boolean }): Promise<void>
  set(path: string, data: string): Promise<void>
  get(path: string): Promise<{ data: string; modifiedMs: number }>
  ping(): Promise<void>
  close(): void
}

export class ZooKeeperError extends Error {
  readonly code: number
  constructor(code: number) {
    super(`ZooKeeper answered ${code}`)
    this.code = code
  }
}

export const noNode = -101

interface Waiting {
  resolve(body: Buffer): void
  reject(error: Error): void
}

const operations = { create: 1, get: 4, set: 5, ping: 11 }
const pingId = -2
const everythingForEverybody = [int(1), int(31), text('world'), text('anyone')]

export async function connectZooKeeper(
  { host, port }: { host: string; port: number },
  { sessionTimeoutMs = 4_000, patienceMs = 3_000 } = {},
): Promise<ZooKeeperClient> {
  const socket = connect({ host, port, noDelay: true })
  // A server may leave a request unanswered without closing the connection.
  socket.setTimeout(patienceMs, () => socket.destroy(new Error('no answer')))
  const answers = new Answers(socket)
  const noPassword = Buffer.alloc(16)
  const hello = answers.next()
  socket.write(packet(int(0), long(0), int(sessionTimeoutMs), long(0), buffer(noPassword), Buffer.from([0])))
  const granted = (await hello).readInt32BE(4)

  let lastId = 0
  const call = async (operation: keyof typeof operations, ...body: readonly Buffer[]): Promise<Buffer> => {
    lastId += 1
    const id = operation === 'ping' ? pingId : lastId
    const answer = answers.next()
    socket.write(packet(int(id), int(operations[operation]), ...body))
    const reply = await answer
    const error = reply.readInt32BE(12)
    if (error !== 0) throw new ZooKeeperError(error)
    return reply.subarray(16)
  }
  const close = () => {
    socket.destroy()
  }
  return {
    sessionTimeoutMs: granted,
    async create(path, data = '', { ephemeral = false } = {}) {
      await call('create', text(path), text(data), ...everythingForEverybody, int(ephemeral ? 1 : 0))
    },
    async set(path, data) {
      await call('set', text(path), text(data), int(-1))
    },
    async get(path) {
      const reply = await call('get', text(path), Buffer.from([0]))
      const end = 4 + reply.readInt32BE(0)
      return { data: reply.toString('utf8', 4, end), modifiedMs: Number(reply.readBigInt64BE(end + 24)) }
    },
    async ping() {
      await call('ping')
    },
    close,
    [Symbol.dispose]: close,
  }
}

/** Answers come in the order of the requests. */
class Answers {
  readonly #waiting: Waiting[] = []
  #ended: Error | null = null
  #unread = Buffer.alloc(0)

  constructor(socket: Socket) {
    const end = (error: Error) => {
      this.#ended ??= error
      for (const { reject } of this.#waiting.splice(0)) reject(this.#ended)
    }
    socket.on('error', end)
    socket.on('close', () => end(new Error('the connection was closed')))
    socket.on('data', (chunk) => this.#read(chunk))
  }

  next(): Promise<Buffer> {
    if (this.#ended) return Promise.reject(this.#ended)
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject })
    })
  }

  #read(chunk: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, chunk])
    while (this.#unread.length >= 4) {
      const end = 4 + this.#unread.readInt32BE(0)
      if (this.#unread.length < end) return
      this.#waiting.shift()?.resolve(this.#unread.subarray(4, end))
      this.#unread = this.#unread.subarray(end)
    }
  }
}

function packet(...parts: readonly Buffer[]): Buffer {
  return buffer(Buffer.concat(parts))
}

function buffer(bytes: Buffer): Buffer {
  return Buffer.concat([int(bytes.length), bytes])
}

function text(value: string): Buffer {
  return buffer(Buffer.from(value))
}

function int(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(value)
  return bytes
}

function long(value: number): Buffer {
  const bytes = Buffer.alloc(8)
  bytes.writeBigInt64BE(BigInt(value))
  return bytes
}
