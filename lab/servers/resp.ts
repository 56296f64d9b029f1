// The least that speaks to a Redis server: no reconnection, no options, so that a fault shows as it is.

import { connect, type Socket } from 'node:net'

export type Reply = string | number | null | Reply[]

export interface RespClient extends Disposable {
  call(...command: readonly (string | number)[]): Promise<Reply>
  close(): void
}

export class RespError extends Error {}

interface Waiting {
  resolve(reply: Reply): void
  reject(error: Error): void
}

export async function connectRedis({ host, port }: { host: string; port: number }): Promise<RespClient> {
  const socket = connect({ host, port, noDelay: true })
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  return speak(socket)
}

/** One command on a connection of its own. */
export async function redisCall(
  address: { host: string; port: number },
  ...command: readonly (string | number)[]
): Promise<Reply> {
  using client = await connectRedis(address)
  return await client.call(...command)
}

function speak(socket: Socket): RespClient {
  const waiting: Waiting[] = []
  let unread = Buffer.alloc(0)
  let ended: Error | null = null

  const end = (error: Error) => {
    ended ??= error
    for (const { reject } of waiting.splice(0)) reject(ended)
  }
  socket.on('error', end)
  socket.on('close', () => end(new Error('the connection was closed')))
  socket.on('data', (chunk) => {
    unread = Buffer.concat([unread, chunk])
    for (let read = readReply(unread, 0); read !== null; read = readReply(unread, 0)) {
      unread = unread.subarray(read.end)
      const next = waiting.shift()
      if (read.reply instanceof RespError) next?.reject(read.reply)
      else next?.resolve(read.reply)
    }
  })
  const close = () => {
    socket.destroy()
  }
  return {
    call(...command) {
      if (ended) return Promise.reject(ended)
      const parts = command.map((part) => `$${Buffer.byteLength(String(part))}\r\n${part}\r\n`)
      socket.write(`*${parts.length}\r\n${parts.join('')}`)
      return new Promise((resolve, reject) => {
        waiting.push({ resolve, reject })
      })
    },
    close,
    [Symbol.dispose]: close,
  }
}

/** One complete reply and where it ends, or null if the rest of it is still on its way. */
function readReply(bytes: Buffer, from: number): { reply: Reply | RespError; end: number } | null {
  const lineEnd = bytes.indexOf('\r\n', from)
  if (lineEnd === -1) return null
  const line = bytes.toString('utf8', from + 1, lineEnd)
  const end = lineEnd + 2
  switch (bytes.toString('latin1', from, from + 1)) {
    case '+':
      return { reply: line, end }
    case '-':
      return { reply: new RespError(line), end }
    case ':':
      return { reply: Number(line), end }
    case '$': {
      const length = Number(line)
      if (length < 0) return { reply: null, end }
      if (bytes.length < end + length + 2) return null
      return { reply: bytes.toString('utf8', end, end + length), end: end + length + 2 }
    }
    case '*':
      return readArray(bytes, Number(line), end)
    default:
      throw new Error(`not a reply of Redis: ${line}`)
  }
}

function readArray(bytes: Buffer, length: number, from: number): { reply: Reply; end: number } | null {
  if (length < 0) return { reply: null, end: from }
  const items: Reply[] = []
  let end = from
  while (items.length < length) {
    const item = readReply(bytes, end)
    if (item === null) return null
    items.push(item.reply instanceof RespError ? item.reply.message : item.reply)
    end = item.end
  }
  return { reply: items, end }
}
