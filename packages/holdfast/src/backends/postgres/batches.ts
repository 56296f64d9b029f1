/**
 * Requests on claims leave together: one call with arrays for all that have gathered while the last was under way. Two
 * calls may be under way, so that the server works while the client does; who comes first, the names decide.
 *
 *   waiting ──sent──▶ under way ──answered──▶ settled
 *   waiting ──signal aborts──▶ settled: not applied
 *   under way ──signal aborts──▶ settled: unknown; when nobody is left in the batch, it is called off itself
 */
import { arrayLiteral, type Parameter, type Row } from '../../clients/postgres/index.ts'
import { calledOff } from '../../core/backend-kit.ts'
import { Coalescer, type Settled } from '../../core/coalescer.ts'
import { BackendUnavailableError } from '../../core/errors.ts'

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
  readonly text?: string
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
}

/** Each name of a batch takes a place in the server's lock table, which has some thousands for everybody. */
const MAX_BATCH = 128

const LANES = 2

interface Lane {
  readonly coalescer: Coalescer<Entry, Answer>
  /** Gathered or under way. */
  entries: number
}

interface Entry {
  readonly item: Item
  batch: Batch | undefined
  gone: boolean
}

interface Batch {
  readonly controller: AbortController
  present: number
}

export class Batches {
  readonly #options: BatchesOptions
  readonly #lanes: readonly Lane[]

  constructor(options: BatchesOptions) {
    this.#options = options
    this.#lanes = Array.from({ length: LANES }, () => ({
      coalescer: new Coalescer((entries: readonly Entry[]) => this.#send(entries), { maxBatch: MAX_BATCH }),
      entries: 0,
    }))
  }

  add(item: Item, signal: AbortSignal): Promise<Answer> {
    const entry: Entry = { item, batch: undefined, gone: false }
    const lane = this.#lanes.reduce((least, each) => (each.entries < least.entries ? each : least))
    lane.entries++
    return new Promise<Answer>((resolve, reject) => {
      const onAbort = () => {
        entry.gone = true
        if (entry.batch === undefined)
          return lane.coalescer.withdraw(
            (each) => each === entry,
            calledOff('postgres', signal, 'not-applied'),
          )
        reject(calledOff('postgres', signal, 'unknown'))
        entry.batch.present--
        if (entry.batch.present === 0) entry.batch.controller.abort(signal.reason)
      }
      signal.addEventListener('abort', onAbort, { once: true })
      lane.coalescer
        .add(entry)
        .finally(() => {
          lane.entries--
          signal.removeEventListener('abort', onAbort)
        })
        .then(resolve, reject)
    })
  }

  /** An attempt is asked about once in a call; who asks the same twice at once gets an answer each, one after the other. */
  async #send(entries: readonly Entry[]): Promise<readonly Settled<Answer>[]> {
    const answers = new Map<Entry, Settled<Answer>>()
    let rest = entries
    while (rest.length > 0) {
      const keys = new Set<string>()
      const now = rest.filter(({ item }) => {
        const key = keyOf(item.op, item.attempt)
        return !keys.has(key) && keys.add(key)
      })
      rest = rest.length === now.length ? [] : rest.filter((entry) => !now.includes(entry))
      await this.#call(now, answers)
    }
    return entries.map((entry) => answers.get(entry) ?? missing)
  }

  async #call(entries: readonly Entry[], answers: Map<Entry, Settled<Answer>>): Promise<void> {
    const batch = { controller: new AbortController(), present: 0 }
    for (const entry of entries) {
      if (entry.gone) continue
      entry.batch = batch
      batch.present++
    }
    try {
      const items = entries.map(({ item }) => item)
      const [first] = items
      const alone = items.length === 1 && first !== undefined ? singleCall(first) : null
      const [statement, parameters] = alone ?? (['apply', parametersOf(items)] as const)
      const rows = await this.#options.call(statement, parameters, batch.controller.signal)
      const byKey = this.#read(
        alone === null || first === undefined ? rows : rowsOfSingle(first, String(rows[0]?.[0])),
      )
      for (const entry of entries) {
        const answer = byKey.get(keyOf(entry.item.op, entry.item.attempt))
        answers.set(entry, answer === undefined ? missing : { ok: true, answer })
      }
    } catch (error) {
      for (const entry of entries) answers.set(entry, { ok: false, error })
    }
  }

  #read(rows: readonly Row[]): Map<string, Answer> {
    const byKey = new Map<string, Answer>()
    const handed: Handed[] = []
    for (const [op, attempt, kind, token, data, ms, session] of rows as readonly AnswerRow[]) {
      if (op === 'h') handed.push({ session: Number(session), attempt, token, data })
      else byKey.set(`${op}${attempt}`, { kind, token, data, ms: ms === null ? null : Number(ms) })
    }
    for (const each of handed) this.#options.onHanded(each)
    return byKey
  }
}

type AnswerRow = readonly [string, string, string, string | null, string | null, unknown, unknown]

const missing: Settled<Answer> = {
  ok: false,
  error: new BackendUnavailableError('postgres', 'the answer to a batch lacks one of its items', 'unknown'),
}

/** A try and a wait are both answered as an acquire. */
function keyOf(op: Operation, attempt: string): string {
  return `${op === 't' || op === 'q' ? 'g' : op}${attempt}`
}

/** Null: there is no shorter way for it. */
function singleCall(item: Item): readonly [BatchStatement, readonly Parameter[]] | null {
  const { op, name, attempt, session, mode, weight, capacity, ms = 0, text = null } = item
  if (op === 'r') return ['giveBack', [name, attempt, session, ms]]
  if (op !== 't' && op !== 'q') return null
  const wanted = [mode ?? null, weight ?? null, capacity ?? null, ms, text]
  return ['take', [op, name, attempt, session, ...wanted]]
}

/** See `sql/single.ts`. */
function rowsOfSingle({ op, attempt }: Item, answer: string): readonly Row[] {
  if (answer === '-') return [['r', attempt, 'released', null, null, null, null]]
  if (!answer.startsWith('+')) return JSON.parse(answer) as Row[]
  const end = answer.indexOf(' ')
  const token = end === -1 ? answer.slice(1) : answer.slice(1, end)
  const data = end === -1 ? null : answer.slice(end + 1)
  return [[keyOf(op, ''), attempt, 'granted', token, data, null, null]]
}

function parametersOf(items: readonly Item[]): readonly Parameter[] {
  const column = (read: (item: Item) => string | number | undefined) => arrayLiteral(items.map(read))
  return [
    column(({ op }) => op),
    column(({ name }) => name),
    column(({ attempt }) => attempt),
    column(({ session }) => session),
    column(({ mode }) => mode),
    column(({ weight }) => weight),
    column(({ capacity }) => capacity),
    column(({ ms }) => ms),
    column(({ text }) => text),
  ]
}
