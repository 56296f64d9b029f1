/**
 * Requests about claims leave in batches: one call for one or several of them.
 *
 * A call that is cancelled costs its connection, and a new one costs more than the answer. So the lane waits a while for an
 * answer that no caller waits for.
 */
import type { Clock } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { arrayLiteral } from '../../clients/postgres/index.ts'
import { Lane } from '../../kit/lane.ts'
import type { Call } from '../../spi.ts'
import { REQUEST } from './sql/tables.ts'

/** See `sql/claims.ts` for what the operations are and which of the fields they use. */
export interface Request {
  readonly op: 'g' | 'r' | 'a' | 'd'
  readonly name: string
  readonly attempt: string
  readonly session: number
  /** The grant that a release or `setData` is about. */
  readonly token?: string
  readonly ms?: number
  readonly text?: string | undefined
  readonly waits?: boolean
  readonly mode?: string
  readonly weight?: number
  readonly capacity?: number
  readonly owner?: string | undefined
  readonly max_waiters?: number | undefined
  readonly wait_ms?: number | undefined
}

/** A row of an answer: see `sql/claims.ts`. */
export type AnswerRow = readonly [
  op: string,
  attempt: string,
  kind: string,
  token?: string | null,
  data?: string | null,
  ms?: number | null,
  session?: number,
]

export interface BatchesOptions {
  readonly clock: Clock
  /** Rows for waiters are not among those that it answers. */
  readonly send: (requests: string, call: Call) => Promise<readonly AnswerRow[]>
}

export function openBatches({ clock, send }: BatchesOptions): Lane<Request, AnswerRow> {
  return new Lane<Request, AnswerRow>({
    backend: 'postgres',
    clock,
    // Each name of a batch needs an entry in the server's lock table, which has some thousands for all connections.
    maxBatch: 128,
    maxInFlight: 2,
    minSplit: 8,
    // An attempt is asked about once in a call.
    keyOf: ({ op, attempt }) => op + attempt,
    // A second call about a name would only wait for its lock at the server, behind the first and in the way of other
    // processes. Here it can still be cancelled. A release goes at once: others wait for it.
    nameOf: ({ name }) => name,
    overtakes: ({ op }) => op === 'r',
    // A caller that gave up often tries again at once: then both leave together.
    isPatient: ({ op }) => op === 'a',
    send: async (requests, call) => {
      const rows = await send(arrayLiteral(requests.map(recordLiteral)), call)
      const byKey = new Map<string, AnswerRow>()
      for (const row of rows) byKey.set(row[0] + row[1], row)
      return requests.map(({ op, attempt }) => byKey.get(op + attempt) ?? missing)
    },
  })
}

const missing = new BackendUnavailableError(
  'postgres',
  'the answer to a batch lacks one of its requests',
  'unknown',
)

/** As PostgreSQL reads a value of the type `request`. */
function recordLiteral(request: Request): string {
  const fields: unknown[] = []
  for (const [field] of REQUEST) {
    const value = request[field]
    fields.push(typeof value === 'string' ? `"${value.replace(/["\\]/g, '\\$&')}"` : (value ?? ''))
  }
  return `(${fields.join(',')})`
}
