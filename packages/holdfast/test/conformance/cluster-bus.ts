/**
 * Messages go from node to node of a Cluster by themselves. This knows when they have arrived: every node is listened to, and
 * what one node sends to another arrives in order, so when a probe of every node is everywhere, so is all that came before.
 */
import type { Server } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'

const CHANNEL = 'probe of the bus'

export class ClusterBus {
  readonly #senders: readonly Redis[]
  readonly #listeners: readonly Redis[]
  /** How many of the current probe are still on their way. */
  #missing = 0
  #round = 0
  #arrived: (() => void) | undefined
  #turn: Promise<void> = Promise.resolve()

  private constructor(members: readonly Server[]) {
    const connect = ({ host, port }: Server) => new Redis({ host, port })
    this.#senders = members.map(connect)
    this.#listeners = members.map(connect)
  }

  static async listen(members: readonly Server[]): Promise<ClusterBus> {
    const bus = new ClusterBus(members)
    for (const listener of bus.#listeners) {
      listener.on('message', (_, round: string) => bus.#received(Number(round)))
      await listener.subscribe(CHANNEL)
    }
    return bus
  }

  /** Resolves when everything that was published before has reached every node. */
  hasPassedOn(): Promise<void> {
    this.#turn = this.#turn.then(() => this.#probe())
    return this.#turn
  }

  /** One at a time. */
  async #probe(): Promise<void> {
    const round = String(++this.#round)
    this.#missing = this.#senders.length * this.#listeners.length
    const arrived = new Promise<void>((resolve) => {
      this.#arrived = resolve
    })
    await Promise.all(this.#senders.map((sender) => sender.publish(CHANNEL, round)))
    await arrived
  }

  close(): void {
    for (const client of [...this.#senders, ...this.#listeners]) client.disconnect()
  }

  #received(round: number): void {
    if (round === this.#round && --this.#missing === 0) this.#arrived?.()
  }
}
