// One connection through a proxy: the client's socket, the one to the server, and a lane in each direction.

import { connect, type Socket } from 'node:net'
import { Lane, type Treatment } from './lane.ts'

export interface Address {
  readonly host: string
  readonly port: number
}

export interface Link {
  /** The label that the proxy made of the first bytes, or empty. */
  readonly label: string
}

export class ProxyLink implements Link {
  label = ''
  readonly #client: Socket
  readonly #target: Address
  readonly #up: Lane
  readonly #treatment: (link: Link, direction: 'up' | 'down') => Treatment
  #server: Socket | null = null
  #down: Lane | null = null
  #gone: () => void = () => {}

  constructor(
    client: Socket,
    target: Address,
    treatment: (link: Link, direction: 'up' | 'down') => Treatment,
    rewrite?: (first: Buffer) => Buffer,
  ) {
    this.#client = client
    this.#target = target
    this.#treatment = treatment
    this.#up = new Lane(
      client,
      () => this.#dial(),
      () => treatment(this, 'up'),
      rewrite,
    )
    client.once('close', () => this.#checkGone())
  }

  isLossy(): boolean {
    return this.#up.lossy || this.#down?.lossy === true
  }

  swallowedBytes(direction: 'up' | 'down'): number {
    return (direction === 'up' ? this.#up : this.#down)?.swallowedBytes ?? 0
  }

  poke(): void {
    // While nothing gets through to the server, neither does the wish to connect.
    if (!['drop', 'hold'].includes(this.#treatment(this, 'up').kind)) this.#dial()
    this.#up.poke()
    this.#down?.poke()
  }

  reset(): void {
    this.#client.resetAndDestroy()
    this.#server?.resetAndDestroy()
    this.#gone()
  }

  whenGone(listener: () => void): void {
    this.#gone = listener
  }

  #dial(): Socket {
    if (this.#server) return this.#server
    const server = connect({ ...this.#target, noDelay: true, allowHalfOpen: true })
    this.#server = server
    this.#down = new Lane(
      server,
      () => this.#client,
      () => this.#treatment(this, 'down'),
    )
    server.once('close', () => this.#checkGone())
    return server
  }

  #checkGone(): void {
    if (this.#client.destroyed && (this.#server?.destroyed ?? true)) this.#gone()
  }
}
