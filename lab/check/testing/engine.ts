/** A correct engine in simulated time: a fair queue per name, leases that expire, one counter of tokens. */
import type { Recorder } from '../recorder.ts'
import type { Timers } from './timers.ts'

export interface Request {
  readonly name: string
  readonly leaseId: string
  readonly process: string
  readonly weight: number
  readonly capacity: number
  readonly granted: (token: bigint) => void
}

interface Held {
  readonly request: Request
  readonly token: bigint
  expiresAt: number
}

export class Engine {
  readonly #timers: Timers
  readonly #recorder: Recorder
  readonly #ttlMs: number
  readonly #holders = new Map<string, Map<string, Held>>()
  readonly #lines = new Map<string, Request[]>()
  readonly #abandoned = new Set<string>()
  #token = 0n

  constructor(timers: Timers, recorder: Recorder, ttlMs: number) {
    this.#timers = timers
    this.#recorder = recorder
    this.#ttlMs = ttlMs
  }

  enqueue(request: Request): void {
    if (this.#abandoned.has(request.leaseId)) return
    this.#lineOf(request.name).push(request)
    this.#event('enqueued', request)
    this.#serve(request.name)
  }

  renew(name: string, leaseId: string): boolean {
    const held = this.#holdersOf(name).get(leaseId)
    if (held === undefined) return false
    held.expiresAt = this.#timers.now + this.#ttlMs
    this.#event('renewed', held.request)
    return true
  }

  release(name: string, leaseId: string): boolean {
    const held = this.#holdersOf(name).get(leaseId)
    if (held === undefined) return false
    this.#end(held, 'released')
    return true
  }

  /** Afterwards the attempt neither holds nor waits, and can never land. */
  abandon(name: string, leaseId: string): void {
    this.#abandoned.add(leaseId)
    const line = this.#lineOf(name)
    const place = line.findIndex((request) => request.leaseId === leaseId)
    const [left] = place < 0 ? [] : line.splice(place, 1)
    if (left !== undefined) {
      this.#event('left', left)
      this.#serve(name)
    } else this.release(name, leaseId)
  }

  #serve(name: string): void {
    const line = this.#lineOf(name)
    const holders = this.#holdersOf(name)
    for (let first = line[0]; first !== undefined; first = line[0]) {
      const weight = [...holders.values()].reduce((sum, { request }) => sum + request.weight, 0)
      if (weight + first.weight > first.capacity) return
      line.shift()
      const held = { request: first, token: ++this.#token, expiresAt: this.#timers.now + this.#ttlMs }
      holders.set(first.leaseId, held)
      this.#event('granted', first, held.token)
      this.#watch(held)
      first.granted(held.token)
    }
  }

  #watch(held: Held): void {
    this.#timers.after(held.expiresAt - this.#timers.now, () => {
      if (this.#holdersOf(held.request.name).get(held.request.leaseId) !== held) return
      if (held.expiresAt > this.#timers.now) this.#watch(held)
      else this.#end(held, 'expired')
    })
  }

  #end(held: Held, what: 'released' | 'expired'): void {
    this.#holdersOf(held.request.name).delete(held.request.leaseId)
    this.#event(what, held.request)
    this.#serve(held.request.name)
  }

  #event(
    what: 'granted' | 'renewed' | 'released' | 'expired' | 'enqueued' | 'left',
    request: Request,
    token?: bigint,
  ): void {
    const { name, leaseId, process, weight, capacity } = request
    const fields = { name, leaseId, process, weight, capacity, ttlMs: this.#ttlMs }
    this.#recorder.add({ kind: 'engine', what, ...fields, ...(token === undefined ? {} : { token }) })
  }

  #holdersOf(name: string): Map<string, Held> {
    const holders = this.#holders.get(name) ?? new Map<string, Held>()
    this.#holders.set(name, holders)
    return holders
  }

  #lineOf(name: string): Request[] {
    const line = this.#lines.get(name) ?? []
    this.#lines.set(name, line)
    return line
  }
}
