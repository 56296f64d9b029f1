/** Transactions of Consul: operations on keys, and the entries that their answers show. */
/** The most operations of a transaction. */
export const MAX_OPERATIONS = 64

export interface Operation {
  readonly KV: {
    readonly Verb: string
    readonly Key: string
    readonly Value?: string
    readonly Flags?: number
    readonly Index?: number
    readonly Session?: string
  }
}

/** One that lacks our mark is foreign: its value and its lock mean nothing here. */
export interface Entry {
  readonly key: string
  readonly isForeign: boolean
  readonly value: string
  /** The session that has locked it. */
  readonly session: string | undefined
  /** Indexes of Raft. */
  readonly created: bigint
  readonly modified: bigint
}

/** All of them were applied, with what they have read; or none, because one could not be. */
export type Transacted =
  | { readonly entries: readonly Entry[]; readonly refused?: never }
  | { readonly entries?: never; readonly refused: { readonly index: number; readonly what: string } }

/** Marks our keys: `hold`. */
export const FLAGS = 0x68_6f_6c_64

const operation = (Verb: string, Key: string, also: object = {}): Operation => ({
  KV: { Verb, Key, ...also },
})
const written = (value: string) => ({ Value: Buffer.from(value).toString('base64'), Flags: FLAGS })

export const lock = (key: string, value: string, Session: string) =>
  operation('lock', key, { ...written(value), Session })
/** A locked key stays locked by its session. */
export const cas = (key: string, value: string, index: bigint) =>
  operation('cas', key, { ...written(value), Index: Number(index) })
export const set = (key: string, value: string) => operation('set', key, written(value))
export const remove = (key: string) => operation('delete', key)
export const tree = (prefix: string) => operation('get-tree', prefix)
export const absent = (key: string) => operation('check-not-exists', key)
export const unchanged = (key: string, index: bigint) =>
  operation('check-index', key, { Index: Number(index) })
export const lockedBy = (key: string, Session: string) => operation('check-session', key, { Session })

/** The answer of a transaction with this status. Throws what is wrong with it. */
export function transacted(status: number, body: unknown): Transacted {
  const { Results, Errors } = recordOf(body)
  // An answer without results is not an empty one (T103, malformed answers).
  if (status === 200 && Results === undefined) throw new Error('it has no results')
  if (status === 200) return { entries: arrayOf(Results ?? []).map((each) => entryOf(recordOf(each).KV)) }
  const [error] = arrayOf(Errors)
  const { OpIndex, What } = recordOf(error)
  if (!Number.isInteger(OpIndex) || typeof What !== 'string')
    throw new Error('it does not say what it refuses')
  return { refused: { index: OpIndex as number, what: What } }
}

/** One entry for each key. A key that is written and read in one transaction has its value in the second entry. */
export function byKey(entries: readonly Entry[]): Entry[] {
  return [...new Map(entries.map((entry) => [entry.key, entry])).values()]
}

export function entryOf(given: unknown): Entry {
  const { Key, Value, Flags, Session, CreateIndex, ModifyIndex } = recordOf(given)
  const isText = (value: unknown) => value === undefined || value === null || typeof value === 'string'
  if (typeof Key !== 'string' || !isText(Value) || !isText(Session)) throw new Error('an entry has no key')
  if (!isIndex(CreateIndex) || !isIndex(ModifyIndex)) throw new Error('an entry has no index')
  const indexes = { created: BigInt(CreateIndex), modified: BigInt(ModifyIndex) }
  if (Flags !== FLAGS) return { key: Key, isForeign: true, value: '', session: undefined, ...indexes }
  const value = Buffer.from((Value as string | null | undefined) ?? '', 'base64').toString()
  const session = (Session as string | null | undefined) ?? undefined
  return { key: Key, isForeign: false, value, session, ...indexes }
}

export function arrayOf(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new Error('it has no list')
  return value
}

export function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null) throw new Error('it has no fields')
  return value as Readonly<Record<string, unknown>>
}

function isIndex(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0
}
