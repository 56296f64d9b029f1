/** A way of its own to every server for each client: a proxy, so that one client can be cut off from all of them. */
import { FaultyProxy } from '../../faults/index.ts'
import type { Addresses, Faults, Way } from './engine.ts'

/** May be changed while clients are there: new connections lead to the new one. */
export interface Target {
  host: string
  port: number
}

export class Doors implements AsyncDisposable {
  readonly #urlOf: (address: Target) => string
  readonly #doors = new Map<string, readonly FaultyProxy[]>()

  private constructor(urlOf: (address: Target) => string) {
    this.#urlOf = urlOf
  }

  static async open(
    clients: readonly string[],
    targets: readonly Target[],
    urlOf: (address: Target) => string,
  ): Promise<Doors> {
    const doors = new Doors(urlOf)
    for (const client of clients) {
      const proxies = targets.map((target) => new FaultyProxy(target).listen())
      doors.#doors.set(client, await Promise.all(proxies))
    }
    return doors
  }

  addressesFor(client: string): Addresses {
    return this.#of(client).map(this.#urlOf)
  }

  readonly partition: Faults['partition'] = {
    cutOff: (client, way) => {
      for (const proxy of this.#of(client)) cuts[way](proxy)
    },
    heal: (client) => {
      for (const proxy of this.#of(client)) proxy.heal()
    },
  }

  /** Cuts a client off from some of the servers: nothing gets through. */
  cutOffFrom(client: string, isTarget: (index: number) => boolean): void {
    for (const [index, proxy] of this.#of(client).entries()) if (isTarget(index)) proxy.blackhole()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#doors.values()].flat().map((proxy) => proxy.close()))
  }

  #of(client: string): readonly FaultyProxy[] {
    const proxies = this.#doors.get(client)
    if (proxies === undefined) throw new Error(`there is no door for ${client}`)
    return proxies
  }
}

const cuts: { readonly [Each in Way]: (proxy: FaultyProxy) => void } = {
  blackhole: (proxy) => proxy.blackhole(),
  'one-way': (proxy) => proxy.drop('down'),
  late: (proxy) => proxy.hold('both'),
}
