/**
 * Requests about claims leave in batches: one call for one or several of them.
 *
 * A call that is cancelled costs its connection, and a new one costs more than the answer. So the lane waits a while for an
 * answer that no caller waits for.
 */
import type { Clock } from '../../../base/clock.ts'
import { BackendUnavailableError } from '../../../base/errors.ts'
import { Lane } from '../../../kit/lane.ts'
import type { Call } from '../../../spi.ts'
import type { Parameter } from '../client/index.ts'
import { acquireFields, releaseFields } from './sql/claims.ts'
import { REQUEST } from './sql/tables.ts'

type Value<Type> = Type extends 'text' ? string : Type extends 'boolean' ? boolean : number
type Fields = { readonly [F in (typeof REQUEST)[number] as F[0]]: Value<F[1]> }

/** See `sql/claims.ts` for what the operations are and which of the fields they use. `token`: the grant that it is about. */
export type Request = { readonly op: 'g' | 'r' | 'a' | 'd' } & Pick<
  Fields,
  'name' | 'attempt' | 'session'
> & {
    readonly [F in Exclude<keyof Fields, 'op'>]?: Fields[F] | undefined
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
  /** Sends a statement with the parameters after its first two. Rows for waiters are not among those that it answers. */
  readonly send: (
    statement: 'apply' | 'applyAcquire' | 'applyRelease',
    parameters: readonly Parameter[],
    call: Call,
  ) => Promise<readonly AnswerRow[]>
}

export function openBatches({ clock, send }: BatchesOptions): Lane<Request, AnswerRow> {
  const sendAll = (requests: readonly Request[], call: Call) =>
    send('apply', [`{${requests.map(requestLiteral).join(',')}}`], call)
  const sendOne = (request: Request, call: Call) => {
    const valuesOf = (fields: typeof acquireFields) => fields.map((field) => request[field] ?? null)
    if (request.op === 'g') return send('applyAcquire', valuesOf(acquireFields), call)
    return request.op === 'r' && request.ms === 0
      ? send('applyRelease', valuesOf(releaseFields), call)
      : sendAll([request], call)
  }
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
      const rows = await (requests.length === 1
        ? sendOne(requests[0] as Request, call)
        : sendAll(requests, call))
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

const FIELDS = REQUEST.map(([field]) => field)

/** As PostgreSQL reads an element of an array of the type `request`. */
function requestLiteral(request: Request): string {
  let fields = ''
  for (const field of FIELDS) fields += `,${fieldLiteral(request[field])}`
  return `"(${fields.slice(1)})"`
}

/** Nearly all are plain, and need neither of the two quotations. */
const PLAIN = /^[\w./:-]+$/

function fieldLiteral(value: string | number | boolean | undefined): string {
  if (value === undefined) return ''
  const text = String(value)
  return PLAIN.test(text) ? text : escaped(`"${escaped(text)}"`)
}

function escaped(text: string): string {
  return text.replace(/["\\]/g, '\\$&')
}
