/**
 * Writes of one session leave in batches: one transaction for requests of different names. ZooKeeper applies all of it or nothing. If
 * one request is refused, nothing was applied, and each is sent again, alone. Nothing else is ever sent twice.
 */
import type { Clock } from '../../../base/clock.ts'
import { ignore } from '../../../base/ignore.ts'
import { Lane } from '../../../kit/lane.ts'
import { whileQueued } from '../../../kit/store-queue.ts'
import type { Call } from '../../../spi.ts'
import type { Part, PartResult, Refused, Reply, Session } from '../client/index.ts'
import { BACKEND } from './connection.ts'
import { MAX_BATCH } from './keys.ts'

interface Statement {
  readonly name: string
  /** `position`: that of the statement in its transaction, which is part of the token. */
  readonly build: (position: number) => readonly Part[]
  /** A node that is read in the same flight, after the write. */
  readonly read?: string | undefined
}

export interface Committed {
  readonly ok: true
  readonly position: number
  readonly results: readonly PartResult[]
  /** If it fails the write was applied all the same, so its error is `unknown`. */
  readonly read?: Promise<Reply<'getData'>> | undefined
}

export class Batches {
  readonly #session: Session
  readonly #lane: Lane<Statement, Committed | Refused>

  constructor(session: Session, clock: Clock) {
    this.#session = session
    this.#lane = new Lane({
      backend: BACKEND,
      clock,
      maxBatch: MAX_BATCH,
      maxInFlight: 16,
      freeInFlight: 2,
      minFurther: MAX_BATCH,
      minSplit: Number.POSITIVE_INFINITY,
      keyOf: ({ name }) => name,
      send: (statements, call) => this.#send(statements, call),
    })
  }

  commit(name: string, build: Statement['build'], call: Call, read?: string): Promise<Committed | Refused> {
    return this.#lane.ask({ name, build, read }, call)
  }

  close(): void {
    this.#lane.close()
  }

  async #send(statements: readonly Statement[], call: Call): Promise<(Committed | Refused | Error)[]> {
    const parts = statements.map(({ build }, position) => build(position))
    const written = this.#session.ask({ op: 'multi', parts: parts.flat() }, call)
    const reads = statements.map(({ read: path }) => {
      if (path === undefined) return undefined
      const read = whileQueued(this.#session.ask({ op: 'getData', path }, call))
      read.catch(ignore)
      return read
    })
    const reply = await written
    if (reply.ok) {
      let from = 0
      return parts.map(({ length }, position) => {
        from += length
        return {
          ok: true,
          position,
          results: reply.results.slice(from - length, from),
          read: reads[position],
        }
      })
    }
    if (statements.length === 1 || reply.code === 'session-gone') return statements.map(() => reply)
    const alone = await Promise.allSettled(statements.map((statement) => this.#send([statement], call)))
    return alone.map((sent) => (sent.status === 'fulfilled' ? (sent.value[0] as Committed) : sent.reason))
  }
}
