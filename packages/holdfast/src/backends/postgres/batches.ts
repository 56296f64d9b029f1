/**
 * Requests about claims leave in batches: one call with arrays for several items, a shorter one for an item that is alone.
 *
 * A call that is cancelled costs its connection, and a new one costs more than the answer. So the lane waits a while for an
 * answer that no caller waits for.
 */
import type { Clock } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { arrayLiteral, type Parameter, type Row } from '../../clients/postgres/index.ts'
import { Lane } from '../../kit/lane.ts'

export type Operation = 't' | 'q' | 'r' | 'a' | 'd'

/** One request; see `sql/claims.ts` for what the operations are and which of the fields they use. */
export interface Item {
  readonly op: Operation
  readonly name: string
  readonly attempt: string
  readonly session: number
  readonly mode?: string
  readonly weight?: number
  readonly capacity?: number
  readonly ms?: number
  readonly text?: string | undefined
  readonly owner?: string | undefined
  readonly maxWaiters?: number | undefined
  readonly waitMs?: number | undefined
  /** The grant that a release or `setData` is about. */
  readonly token?: string
}

export interface Answer {
  readonly kind: string
  readonly token: string | null
  readonly data: string | null
  readonly ms: number | null
}

/** A waiter of this process to whom the batch handed a name; without a token, one who should look. */
export interface Handed {
  readonly session: number
  readonly attempt: string
  readonly token: string | null
  readonly data: string | null
}

/** `apply` for several items; `take` and `giveBack` for one that is alone. */
export type BatchStatement = 'apply' | 'take' | 'giveBack'

export interface BatchesOptions {
  readonly call: (
    statement: BatchStatement,
    parameters: readonly Parameter[],
    signal: AbortSignal,
  ) => Promise<readonly Row[]>
  readonly onHanded: (handed: Handed) => void
  readonly clock: Clock
}

export function openBatches({ clock, call, onHanded }: BatchesOptions): Lane<Item, Answer> {
  return new Lane({
    backend: 'postgres',
    clock,
    // Each name of a batch needs an entry in the server's lock table, which has some thousands for all connections.
    maxBatch: 128,
    maxInFlight: 2,
    minSplit: 8,
    // An attempt is asked about once in a call.
    keyOf: ({ op, attempt }) => keyOf(op, attempt),
    // A second call about a name would only wait for its lock at the server, behind the first and in the way of other
    // processes. Here it can still be cancelled. A release goes at once: others wait for it.
    nameOf: ({ name }) => name,
    overtakes: ({ op }) => op === 'r',
    // A caller that gave up often tries again at once: then both leave together.
    isPatient: ({ op }) => op === 'a',
    send: async (items, { signal }) => {
      const [alone] = items
      const single = items.length === 1 && alone !== undefined ? singleCall(alone) : null
      if (single === null) return answersTo(items, await call('apply', parametersOf(items), signal), onHanded)
      const [row] = await call(single[0], single[1], signal)
      const answer = answerOfSingle(String(row?.[0]))
      return answer !== null ? [answer] : answersTo(items, JSON.parse(String(row?.[0])) as Row[], onHanded)
    },
  })
}

function answersTo(
  items: readonly Item[],
  rows: readonly Row[],
  onHanded: (handed: Handed) => void,
): readonly (Answer | Error)[] {
  const byKey = new Map<string, Answer>()
  for (const [op, attempt, kind, token, data, ms, session] of rows as readonly AnswerRow[]) {
    if (op === 'h') onHanded({ session: Number(session), attempt, token, data })
    else byKey.set(`${op}${attempt}`, { kind, token, data, ms: ms === null ? null : Number(ms) })
  }
  return items.map(({ op, attempt }) => byKey.get(keyOf(op, attempt)) ?? missing)
}

type AnswerRow = readonly [string, string, string, string | null, string | null, unknown, unknown]

const missing = new BackendUnavailableError(
  'postgres',
  'the answer to a batch lacks one of its items',
  'unknown',
)

/** A try and a wait are both answered as an acquire. */
function keyOf(op: Operation, attempt: string): string {
  return `${op === 't' || op === 'q' ? 'g' : op}${attempt}`
}

/** Null: there is no shorter way for it. */
function singleCall(item: Item): readonly [BatchStatement, readonly Parameter[]] | null {
  const { op, name, attempt, session, mode, weight, capacity, ms = 0, text = null, token = null } = item
  const { owner = null, maxWaiters = null, waitMs = null } = item
  if (op === 'r') return ['giveBack', [name, attempt, session, ms, token]]
  if (op !== 't' && op !== 'q') return null
  const wanted = [mode ?? null, weight ?? null, capacity ?? null, ms, text, owner, maxWaiters, waitMs]
  return ['take', [op, name, attempt, session, ...wanted]]
}

const RELEASED: Answer = { kind: 'released', token: null, data: null, ms: null }

/** Null: it is one with rows. See `sql/single.ts`. */
function answerOfSingle(answer: string): Answer | null {
  if (answer === '-') return RELEASED
  if (!answer.startsWith('+')) return null
  const end = answer.indexOf(' ')
  const token = end === -1 ? answer.slice(1) : answer.slice(1, end)
  const data = end === -1 ? null : answer.slice(end + 1)
  return { kind: 'granted', token, data, ms: null }
}

function parametersOf(items: readonly Item[]): readonly Parameter[] {
  const column = (read: (item: Item) => string | number | undefined) => arrayLiteral(items.map(read))
  const rareColumn = (read: (item: Item) => string | number | undefined) =>
    items.some((item) => read(item) !== undefined) ? column(read) : null
  return [
    column(({ op }) => op),
    column(({ name }) => name),
    column(({ attempt }) => attempt),
    column(({ session }) => session),
    // One column, as in version 1: an acquire has a mode, and a release or `setData` a token.
    column(({ mode, token }) => mode ?? token),
    column(({ weight }) => weight),
    column(({ capacity }) => capacity),
    column(({ ms }) => ms),
    column(({ text }) => text),
    rareColumn(({ owner }) => owner),
    rareColumn(({ maxWaiters }) => maxWaiters),
    rareColumn(({ waitMs }) => waitMs),
  ]
}
