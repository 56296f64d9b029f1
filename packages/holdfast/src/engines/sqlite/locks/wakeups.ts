/**
 * Tells waiters in other processes that they are granted, through one local socket per backend. A message is the
 * public half of an attempt's id and a line break. The receiver looks into the file, which alone decides. So a lost
 * message costs a poll, and a forged one a look.
 *
 * The file stores only a random id for each listener; the folder is each user's own. So a user who can write the file
 * cannot make this process talk to other sockets. Users of one file who are not the same user of the system, or have
 * another folder for temporary files, do not reach each other here and poll.
 */
import { lstatSync, mkdirSync, readdir, unlink } from 'node:fs'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import type { Context } from './connection.ts'

type WakeUpContext = Pick<Context, 'random' | 'statistics' | 'socketFolder'>

const ID = /^[\w-]{22}$/
const LONGEST_MESSAGE = 64
/** A process that is stopped does not read; what it has not read by then it will find by polling. */
const MOST_UNSENT_BYTES = 64 * 1_024
/** The shortest limit of the systems that we know is macOS's, with its final zero byte. */
const LONGEST_SOCKET_PATH = 103

export class WakeUps {
  readonly #context: WakeUpContext
  readonly #onWakeUp: (ids: readonly string[]) => void
  readonly #folder: string
  readonly #peers = new Map<string, Socket>()
  readonly #incoming = new Set<Socket>()
  #listening: { readonly server: Server; readonly address: string | null } | undefined

  /** `onWakeUp` is called with the public ids that another process says have been granted. */
  constructor(context: WakeUpContext, onWakeUp: (ids: readonly string[]) => void) {
    this.#context = context
    this.#onWakeUp = onWakeUp
    this.#folder = context.socketFolder ?? join(tmpdir(), `holdfast-${userInfo().uid}`)
  }

  /** Where this process listens, from the first call on; null if it cannot. */
  address(): string | null {
    this.#listening ??= this.#listen()
    return this.#listening.address
  }

  send(address: string, id: string): void {
    if (!ID.test(address)) return
    const socket = this.#peers.get(address) ?? this.#connect(address)
    if (socket.writableLength > MOST_UNSENT_BYTES) return
    this.#context.statistics.wakeUpsSent++
    // The process may end when the message has left, but not before.
    socket.ref()
    socket.write(`${id}\n`, () => socket.unref())
  }

  close(): void {
    // Sends what is on its way, without waiting until it is read.
    for (const socket of this.#peers.values()) socket.destroySoon()
    for (const socket of this.#incoming) socket.destroy()
    this.#listening?.server.close()
  }

  #listen(): { server: Server; address: string | null } {
    const address = this.#context.random.id()
    const server = createServer((socket) => this.#receive(socket))
    server.on('error', () => {})
    server.unref()
    const path = this.#pathOf(address)
    if (process.platform === 'win32' || !this.#prepareFolder() || path.length > LONGEST_SOCKET_PATH)
      return { server, address: null }
    // A worker of `cluster` would otherwise ask its primary to listen, and share the socket with its siblings.
    server.listen({ path, exclusive: true })
    if (!server.listening) return { server, address: null }
    removeStale(this.#folder, path)
    return { server, address }
  }

  #pathOf(address: string): string {
    return join(this.#folder, `${address}.sock`)
  }

  /** The folder must be this user's alone: others could otherwise listen instead of us. */
  #prepareFolder(): boolean {
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o700 })
      const found = lstatSync(this.#folder)
      return found.isDirectory() && found.uid === userInfo().uid && (found.mode & 0o077) === 0
    } catch {
      return false
    }
  }

  #receive(socket: Socket): void {
    this.#incoming.add(socket)
    socket.unref()
    socket.setEncoding('latin1')
    socket.on('error', () => {})
    socket.on('close', () => this.#incoming.delete(socket))
    let rest = ''
    socket.on('data', (text: string) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      const ids = lines.filter((line) => ID.test(line))
      if (ids.length > 0) {
        this.#context.statistics.wakeUpsReceived += ids.length
        this.#onWakeUp(ids)
      }
      if (rest.length > LONGEST_MESSAGE || ids.length < lines.length) socket.destroy()
    })
  }

  #connect(address: string): Socket {
    const socket = connect(this.#pathOf(address))
    this.#peers.set(address, socket)
    socket.unref()
    // Nothing is sent back. Without this the end of the peer would not be noticed.
    socket.resume()
    socket.on('error', () => {})
    socket.on('close', () => {
      if (this.#peers.get(address) === socket) this.#peers.delete(address)
    })
    return socket
  }
}

const MOST_STALE_AT_ONCE = 32

/** Sockets of processes that were killed stay behind as files. Those that refuse a connection are removed. */
function removeStale(folder: string, own: string): void {
  readdir(folder, (_, files = []) => {
    const others = files.map((file) => join(folder, file)).filter((path) => path !== own)
    for (const path of others.slice(0, MOST_STALE_AT_ONCE)) {
      const probe = connect(path)
      probe.unref()
      probe.on('connect', () => probe.destroy())
      probe.on('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ECONNREFUSED') unlink(path, () => {})
      })
    }
  })
}
