/**
 * Messages between clients and servers. Each takes its time, and may get lost, be late, come twice or overtake
 * another, as the windows that are open at the moment say.
 */
import type { Direction, Fault } from './faults.ts'
import { hashOf, Stream } from './random.ts'
import type { Scheduler } from './scheduler.ts'

export type NetworkFault = Extract<
  Fault,
  { kind: 'partition' | 'loss' | 'delay' | 'duplicate' | 'lost-pushes' | 'late-write' }
>

export interface Message {
  readonly client: number
  readonly server: 'engine' | 'resource'
  readonly direction: 'out' | 'in'
  readonly isPush?: boolean
  readonly isWrite?: boolean
  /** Connections deliver in order and once. */
  readonly inOrder?: boolean
  readonly deliver: () => void
  readonly onLost?: () => void
}

export class Network {
  readonly #scheduler: Scheduler
  readonly #seed: number
  readonly #latencyMs: number
  readonly #count: (what: string) => void
  readonly #open = new Set<NetworkFault>()
  readonly #sent = new Map<string, number>()
  readonly #lastArrivalMs = new Map<string, number>()

  constructor(scheduler: Scheduler, seed: number, latencyMs: number, count: (what: string) => void) {
    this.#scheduler = scheduler
    this.#seed = seed
    this.#latencyMs = latencyMs
    this.#count = count
  }

  begin(fault: NetworkFault): void {
    this.#open.add(fault)
    // It waits for its write, however long that takes.
    if (fault.kind === 'late-write') return
    this.#scheduler.after(fault.forMs, () => this.#open.delete(fault))
  }

  send(message: Message): void {
    const { client, server, direction } = message
    const link = `${client}/${server}/${direction}`
    const number = (this.#sent.get(link) ?? 0) + 1
    this.#sent.set(link, number)
    const dice = new Stream(hashOf(this.#seed, 'message', link, number))
    let delayMs = this.#latencyMs * dice.between(0.5, 1.5)
    let copyAfterMs: number | undefined
    for (const fault of this.#open) {
      if (fault.client !== client) continue
      if ('direction' in fault && !crosses(fault.direction, direction)) continue
      // One roll for each message and fault, whatever else is going on.
      const roll = new Stream(hashOf(this.#seed, 'hit', fault.id, link, number))
      if ('share' in fault && !roll.chance(fault.share)) continue
      if (fault.kind === 'late-write') {
        if (!message.isWrite) continue
        this.#open.delete(fault)
        this.#count('fault late-write')
        delayMs += fault.forMs
        continue
      }
      if (fault.kind === 'lost-pushes') {
        if (!message.isPush) continue
        this.#count('fault lost-pushes')
        return
      }
      if (fault.kind === 'duplicate') {
        if (message.inOrder) continue
        copyAfterMs = roll.between(0, fault.byMs)
      } else if (fault.kind === 'delay') delayMs += roll.between(0, fault.byMs)
      else {
        this.#count(`fault ${fault.kind}`)
        message.onLost?.()
        return
      }
      this.#count(`fault ${fault.kind}`)
    }
    this.#arrive(message, link, delayMs)
    if (copyAfterMs !== undefined) this.#arrive(message, link, delayMs + copyAfterMs)
  }

  #arrive(message: Message, link: string, delayMs: number): void {
    let atMs = this.#scheduler.nowMs + delayMs
    if (message.inOrder && !message.isWrite) {
      atMs = Math.max(atMs, this.#lastArrivalMs.get(link) ?? 0)
      this.#lastArrivalMs.set(link, atMs)
    }
    this.#scheduler.at(atMs, message.deliver)
  }
}

function crosses(fault: Direction, message: 'out' | 'in'): boolean {
  return fault === 'both' || fault === message
}
