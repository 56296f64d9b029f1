/**
 * Connections of a pool of `pg`, lent for one statement or one transaction.
 *
 * A locker's statements go over a connection beside the pool while the pool has none free: the user's own transactions may
 * have them all, and wait for the locker (T85, shared clients). It is in a pool of one, which opens it when it is needed and closes it when it
 * has been idle.
 */
import type { Clock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { BackendUnavailableError } from '../../../base/errors.ts'
import { asUnavailable } from './failures.ts'
import { listenForErrors, poolBeside } from './pg-connection.ts'
import { PgSockets } from './pg-sockets.ts'
import { isStopped, onStop, type Stop, stoppedCall } from './stop.ts'
import type { PgPool, PgPoolClient } from './types.ts'

/** A pool that is full for less than this is no reason to open another connection. */
const SPARE_AFTER_MS = 100
const SPARE_IDLE_MS = 10_000

export class PgLender {
  readonly #pool: PgPool
  readonly #backend: string
  readonly #clock: Clock
  readonly #sockets: PgSockets
  #spare: PgPool | undefined
  /** Requests for a connection that no call waits for any more. The pool cannot take them back. */
  #leftInPool = 0

  constructor(pool: PgPool, backend: string, clock: Clock) {
    this.#pool = pool
    this.#backend = backend
    this.#clock = clock
    this.#sockets = new PgSockets(clock)
    listenForErrors(pool)
  }

  /** Why a call may wait for a connection. */
  get shortage(): string | undefined {
    const { totalCount = 0, idleCount = 0, waitingCount = 0 } = this.#pool
    if (idleCount > 0 || waitingCount === 0) return undefined
    const waiting = waitingCount - this.#leftInPool
    return (
      `all ${totalCount} connections of the pool are in use${waiting > 0 ? `, and ${waiting} calls wait for one` : ''}: ` +
      'give the locker a pool of its own, or raise `max`'
    )
  }

  /** A connection of the pool. */
  connect(stop: Stop | undefined): Promise<PgPoolClient> {
    return this.#connect(this.#pool, stop) as Promise<PgPoolClient>
  }

  /** The connection beside the pool. */
  spare(stop: Stop | undefined): Promise<PgPoolClient> {
    this.#spare ??= this.#openSpare()
    return this.#connect(this.#spare, stop) as Promise<PgPoolClient>
  }

  async connectOrSpare(stop: Stop | undefined): Promise<PgPoolClient> {
    // The pool serves in order. A request that is left in it waits, so another one would wait too, and be left as well.
    const isStillShort = this.#leftInPool > 0 && this.shortage !== undefined
    const client = isStillShort ? null : await this.#connect(this.#pool, stop, SPARE_AFTER_MS)
    if (client !== null) return client
    const shortage = this.shortage ?? 'the pool was full'
    try {
      return await this.spare(stop)
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      const what = `${shortage}, and another connection could not be opened: ${why}`
      throw new BackendUnavailableError(this.#backend, what, 'not-applied', { cause: error })
    }
  }

  async close(): Promise<void> {
    const spare = this.#spare
    if (spare === undefined || spare === this.#pool) return
    this.#spare = undefined
    await this.#sockets.endWithin(() => spare.end())
  }

  #openSpare(): PgPool {
    const own = {
      max: 1,
      allowExitOnIdle: true,
      idleTimeoutMillis: SPARE_IDLE_MS,
      // A server that accepts and says nothing would keep the one connection for ever.
      connectionTimeoutMillis: defaults.callTimeoutMs,
      stream: this.#sockets.create,
    }
    return poolBeside(this.#pool, own) ?? this.#pool
  }

  /** Null: the pool had none free for `withinMs`, and was not asked any longer. */
  #connect(pool: PgPool, stop: Stop | undefined, withinMs?: number): Promise<PgPoolClient | null> {
    if (isStopped(stop)) return Promise.reject(stoppedCall(this.#backend, stop, 'not-applied'))
    const { idleCount = 0, waitingCount = 0 } = pool
    const connecting = pool.connect().catch((error: unknown) => {
      throw asUnavailable(this.#backend, 'no connection', error, 'not-applied')
    })
    // The pool has one for this call, and hands it out after this turn. If the user ends the pool before, it never answers.
    const isFree = idleCount > waitingCount
    if (isFree && stop === undefined) return connecting
    return new Promise((resolve, reject) => {
      let isLeft = false
      const settle = () => {
        stopListening()
        timer?.cancel()
      }
      const leave = () => {
        isLeft = true
        this.#leftInPool++
        settle()
      }
      const stopListening = onStop(stop, () => {
        leave()
        reject(stoppedCall(this.#backend, stop, 'not-applied'))
      })
      // Asked only then: a connection that is free now may go to a call that came before, and one may be being opened.
      const onSlow = () => {
        if (this.shortage === undefined) return
        leave()
        resolve(null)
      }
      const timer = withinMs === undefined || isFree ? undefined : this.#clock.setTimer(withinMs, onSlow)
      connecting.then(
        (client) => {
          if (isLeft) {
            this.#leftInPool--
            client.release()
            return
          }
          settle()
          resolve(client)
        },
        (error: unknown) => {
          if (isLeft) this.#leftInPool--
          settle()
          reject(error)
        },
      )
    })
  }
}
