// One direction of a proxied connection: what arrives on one socket leaves on the other, in order, in the way that the
// fault of the moment says.

import type { Socket } from 'node:net'

export type Treatment =
  | { readonly kind: 'pass' }
  /** Swallowed for ever. The stream then has a hole, so the connection cannot be used again. */
  | { readonly kind: 'drop' }
  /** Kept, and delivered when the fault ends, as after a partition that lasted less than the patience of TCP. */
  | { readonly kind: 'hold' }
  | { readonly kind: 'delay'; readonly ms: number }
  | { readonly kind: 'slow'; readonly bytes: number; readonly everyMs: number }

/** The end of a stream travels like its bytes: who is cut off does not learn of it. */
type Item = { readonly arrived: number } & ({ readonly bytes: Buffer } | { readonly end: 'end' | 'reset' })

export class Lane {
  /** Something was swallowed, be it only the end. */
  lossy = false
  swallowedBytes = 0
  readonly #from: Socket
  readonly #to: () => Socket
  readonly #treatment: () => Treatment
  readonly #queue: Item[] = []
  #pumping = false
  #poked: () => void = () => {}

  /** `rewrite` changes the first bytes. */
  constructor(
    from: Socket,
    to: () => Socket,
    treatment: () => Treatment,
    rewrite: (first: Buffer) => Buffer = (first) => first,
  ) {
    this.#from = from
    this.#to = to
    this.#treatment = treatment
    from.once('data', (first) => {
      this.#arrive(rewrite(first))
      from.on('data', (bytes) => this.#arrive(bytes))
    })
    from.on('end', () => this.#enqueue({ end: 'end', arrived: performance.now() }))
    from.on('error', () => this.#enqueue({ end: 'reset', arrived: performance.now() }))
    from.on('close', (failed) => {
      if (!failed) this.#enqueue({ end: 'end', arrived: performance.now() })
    })
  }

  /** The treatment may have changed. */
  poke(): void {
    this.#poked()
    void this.#pump()
  }

  #arrive(bytes: Buffer): void {
    if (this.#queue.length === 0 && !this.#pumping && this.#treatment().kind === 'pass') this.#write(bytes)
    else this.#enqueue({ bytes, arrived: performance.now() })
  }

  #enqueue(item: Item): void {
    this.#queue.push(item)
    void this.#pump()
  }

  async #pump(): Promise<void> {
    if (this.#pumping) return
    this.#pumping = true
    while (this.#queue[0] !== undefined) await this.#step(this.#queue[0])
    this.#pumping = false
  }

  async #step(item: Item): Promise<void> {
    const treatment = this.#treatment()
    switch (treatment.kind) {
      case 'pass':
        return this.#deliver(item)
      case 'drop':
        this.#queue.shift()
        this.lossy = true
        if ('bytes' in item) this.swallowedBytes += item.bytes.length
        return
      case 'hold':
        return this.#pokedOrAfter(null)
      case 'delay': {
        const early = item.arrived + treatment.ms - performance.now()
        return early > 0 ? this.#pokedOrAfter(early) : this.#deliver(item)
      }
      case 'slow':
        if (!('bytes' in item) || item.bytes.length <= treatment.bytes) this.#deliver(item)
        else {
          this.#write(item.bytes.subarray(0, treatment.bytes))
          this.#queue[0] = { bytes: item.bytes.subarray(treatment.bytes), arrived: item.arrived }
        }
        return this.#pokedOrAfter(treatment.everyMs)
    }
  }

  #pokedOrAfter(ms: number | null): Promise<void> {
    return new Promise((resolve) => {
      // A proxy that has something to deliver later does not keep the process alive.
      const timer = ms === null ? null : setTimeout(resolve, ms).unref()
      this.#poked = () => {
        if (timer) clearTimeout(timer)
        resolve()
      }
    })
  }

  #deliver(item: Item): void {
    this.#queue.shift()
    if ('bytes' in item) this.#write(item.bytes)
    else if (item.end === 'end') this.#to().end()
    else this.#to().resetAndDestroy()
  }

  #write(bytes: Buffer): void {
    const to = this.#to()
    if (to.destroyed || to.writableEnded) return
    if (!to.write(bytes)) {
      this.#from.pause()
      to.once('drain', () => this.#from.resume())
    }
  }
}
