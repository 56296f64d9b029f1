// A TCP proxy that misbehaves on command. `up` is from the client to the server, `down` is back.
//
// Dropping `down` alone is the fault that matters most for locks: the server did it, and the client never hears.

import { createServer, type Server as NetServer, type Socket } from 'node:net'
import type { Treatment } from './lane.ts'
import { type Address, type Link, ProxyLink } from './link.ts'
import { Recording } from './recording.ts'

export type Direction = 'up' | 'down' | 'both'

export interface ProxyOptions {
  /** Tells connections apart by the first bytes that the client sends. */
  readonly label?: (firstBytes: Buffer) => string
  /** What is sent to the server in place of the client's first bytes. */
  readonly rewrite?: (firstBytes: Buffer) => Buffer
}

/** Which connections a fault is for; all of them, also future ones, if left out. */
export type Where = (link: Link) => boolean

interface Fault {
  readonly treatment: Treatment
  readonly direction: Direction
  readonly where: Where
}

export class FaultyProxy implements AsyncDisposable, Address {
  readonly host = '127.0.0.1'
  port = 0
  readonly target: Address
  readonly #label: (firstBytes: Buffer) => string
  readonly #rewrite: ((firstBytes: Buffer) => Buffer) | undefined
  readonly #links = new Set<ProxyLink>()
  #server: NetServer | null = null
  #faults: Fault[] = []
  #refusing = false
  #recordings: Recording[] = []

  constructor(target: Address, { label = () => '', rewrite }: ProxyOptions = {}) {
    this.target = target
    this.#label = label
    this.#rewrite = rewrite
  }

  /** How many connections there are now. */
  get connections(): number {
    return this.#links.size
  }

  /** How much was dropped, in this direction, of the connections that there are now. */
  swallowedBytes(direction: 'up' | 'down'): number {
    return [...this.#links].reduce((sum, link) => sum + link.swallowedBytes(direction), 0)
  }

  async listen(): Promise<this> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => this.#accept(client))
    this.#server = server
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen({ host: this.host, port: 0 }, resolve)
    })
    server.unref()
    const address = server.address()
    if (address !== null && typeof address === 'object') this.port = address.port
    return this
  }

  /** Nothing passes in either direction, and neither side is told that a connection was closed. */
  blackhole(where?: Where): void {
    this.drop('both', where)
  }

  /** Swallows what flows in this direction. Connections that lost something are reset when the fault ends. */
  drop(direction: Direction, where?: Where): void {
    this.#impose({ kind: 'drop' }, direction, where)
  }

  /** Keeps what flows in this direction, and delivers it when the fault ends: late, but whole. */
  hold(direction: Direction, where?: Where): void {
    this.#impose({ kind: 'hold' }, direction, where)
  }

  delay(ms: number, direction: Direction = 'both', where?: Where): void {
    this.#impose({ kind: 'delay', ms }, direction, where)
  }

  /** A few bytes at a time. */
  slow({ bytes = 1, everyMs = 5 } = {}, direction: Direction = 'both', where?: Where): void {
    this.#impose({ kind: 'slow', bytes, everyMs }, direction, where)
  }

  /** Resets the connections that there are, towards both sides. */
  reset(where: Where = () => true): void {
    for (const link of [...this.#links].filter(where)) link.reset()
  }

  /** From now on, new connections are reset at once. */
  refuse(): void {
    this.#refusing = true
  }

  /** Ends all faults. */
  heal(): void {
    this.#faults = []
    this.#refusing = false
    this.reset((link) => (link as ProxyLink).isLossy())
    this.#pokeAll()
  }

  /** Keeps a copy of what clients send from now on, to be sent once more later. */
  record(): Recording {
    const recording = new Recording(this.target)
    this.#recordings.push(recording)
    return recording
  }

  async close(): Promise<void> {
    this.reset()
    const server = this.#server
    this.#server = null
    if (server) await new Promise((resolve) => server.close(resolve))
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #impose(treatment: Treatment, direction: Direction, where: Where = () => true): void {
    // The latest word counts.
    this.#faults.unshift({ treatment, direction, where })
    this.#pokeAll()
  }

  #pokeAll(): void {
    for (const link of this.#links) link.poke()
  }

  #accept(client: Socket): void {
    if (this.#refusing) {
      client.resetAndDestroy()
      return
    }
    const treatment = (each: Link, direction: 'up' | 'down') => this.#treatmentOf(each, direction)
    const link = new ProxyLink(client, this.target, treatment, this.#rewrite)
    this.#links.add(link)
    client.prependListener('data', (bytes: Buffer) => {
      if (link.label === '') link.label = this.#label(bytes)
      for (const recording of this.#recordings) recording.add(link, bytes)
    })
    link.whenGone(() => this.#links.delete(link))
    link.poke()
  }

  #treatmentOf(link: Link, direction: 'up' | 'down'): Treatment {
    const fault = this.#faults.find(
      (each) => (each.direction === direction || each.direction === 'both') && each.where(link),
    )
    return fault?.treatment ?? { kind: 'pass' }
  }
}

/** A proxy in front of a server. */
export function startProxy(target: Address, options?: ProxyOptions): Promise<FaultyProxy> {
  return new FaultyProxy({ host: target.host, port: target.port }, options).listen()
}
