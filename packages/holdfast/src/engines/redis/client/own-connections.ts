/**
 * Connections of our own, one for each primary, which their users share. Opening has a limit of its own: a caller that gives
 * up does not end it for the others.
 *
 *   (none) ──get──▶ opening ──▶ open ──lost, closed, or the client has been reconnected──▶ (none)
 *
 * A client that has been reconnected may have found another primary, so what was opened before is not used any more.
 */
import { SharedWork, type WorkLimit } from '../../../base/shared-work.ts'
import type { Call } from '../../../spi.ts'
import type { RedisConnection } from './connection.ts'

export interface OwnConnection {
  isOpen(): boolean
  /** Closed by a user, it is not handed out any more. */
  close(): void
}

interface Kept<C> {
  readonly flight: SharedWork<C>
  /** `lossCount` of the client when it was opened. */
  readonly losses: number
  opened?: C
}

export class OwnConnections<C extends OwnConnection> {
  readonly #client: RedisConnection
  readonly #open: (key: string, stop: AbortSignal) => Promise<C>
  readonly #byPrimary = new Map<string, Kept<C>>()

  constructor(client: RedisConnection, open: (key: string, stop: AbortSignal) => Promise<C>) {
    this.#client = client
    this.#open = open
  }

  /** The one to the primary that has this key. */
  get(key: string, call: Call, limit: WorkLimit): Promise<C> {
    const primary = this.#client.ownerOf(key)
    const losses = this.#client.lossCount()
    const found = this.#byPrimary.get(primary)
    if (found !== undefined) {
      if (found.losses === losses && found.opened?.isOpen() !== false) return found.flight.join(call)
      found.flight.drop(new Error('the client was reconnected'))?.then(
        (old) => old.close(),
        () => {},
      )
    }
    const open = async (stop: AbortSignal) => {
      kept.opened = await this.#open(key, stop)
      return kept.opened
    }
    const kept: Kept<C> = { flight: new SharedWork('redis', open, limit), losses }
    this.#byPrimary.set(primary, kept)
    return kept.flight.join(call)
  }
}
