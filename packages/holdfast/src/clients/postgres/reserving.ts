/**
 * Connections of postgres.js for one user alone. Its own `reserve` has two holes, in each of which a reservation that
 * waits for a connection never settles:
 *
 *   Any other connection of the client ends, also one that was merely idle: postgres.js connects again for the
 *   reservation, and forgets it. So reservations belong to nobody here. Whoever asks stands in line, and makes one;
 *   every end of a connection is made up for by another; whichever comes goes to the first in line, and what is one too
 *   many goes back to the client.
 *
 *   With `fetch_types: false`, a connection that is opened for a reservation is not handed over. So a statement opens it
 *   first, and another one comes after the reservation, whose end hands over the connection on which it ran.
 */
import type { PostgresJs, PostgresJsReserved } from './types.ts'

interface Place {
  readonly resolve: (reserved: PostgresJsReserved) => void
  readonly reject: (error: unknown) => void
}

/** The one option of a client that is used here; postgres.js reads it whenever a connection ends. */
interface CloseHook {
  onclose?: ((connectionId: number) => void) | undefined
}

const ignore = () => {}
const lines = new WeakMap<PostgresJs, ReservationLine>()

export class ReservationLine {
  readonly #sql: PostgresJs
  readonly #line = new Set<Place>()

  private constructor(sql: PostgresJs) {
    this.#sql = sql
    const options = sql.options as CloseHook
    const theirs = options.onclose
    options.onclose = (connectionId) => {
      // Not before postgres.js is done with the end of this one.
      queueMicrotask(() => {
        if (this.#line.size > 0) this.#reserve()
      })
      theirs?.(connectionId)
    }
  }

  /** One for each client, however many use it. */
  static of(sql: PostgresJs): ReservationLine {
    const line = lines.get(sql) ?? new ReservationLine(sql)
    lines.set(sql, line)
    return line
  }

  /** Leaves the line when the signal aborts, with what `onAbort` returns. */
  take(signal: AbortSignal | undefined, onAbort: () => Error): Promise<PostgresJsReserved> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#line.delete(place)
        signal?.removeEventListener('abort', abort)
      }
      const abort = () => {
        leave()
        reject(onAbort())
      }
      const place: Place = {
        resolve: (reserved) => {
          leave()
          resolve(reserved)
        },
        reject: (error) => {
          leave()
          reject(error)
        },
      }
      this.#line.add(place)
      signal?.addEventListener('abort', abort, { once: true })
      this.#reserve()
    })
  }

  #reserve(): void {
    const reserving = opensForReservations(this.#sql)
      ? this.#sql.reserve()
      : this.#touch().then(() => {
          const reserved = this.#sql.reserve()
          this.#touch().catch(ignore)
          return reserved
        })
    reserving.then(
      (reserved) => {
        const [first] = this.#line
        if (first === undefined) reserved.release()
        else first.resolve(reserved)
      },
      (error: unknown) => {
        const [first] = this.#line
        first?.reject(error)
      },
    )
  }

  async #touch(): Promise<void> {
    await this.#sql.unsafe('SELECT 1').values()
  }
}

function opensForReservations({ options }: PostgresJs): boolean {
  return (options as { fetch_types?: unknown }).fetch_types !== false
}
