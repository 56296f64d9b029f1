/** The parts of transactions: what is compared, read and written. */
import type { Compare, KeyValue, Operation, RangeRequest, TxnRequest, TxnResponse } from './messages.ts'

/** From `key` to `range_end`, without the latter. */
export interface Range {
  readonly key: string
  readonly range_end: string
}

const [GREATER, LESS] = [1, 2]
const [CREATE, MOD, VALUE] = [1, 2, 3]
const NEWEST_FIRST = { sort_order: 2, sort_target: 2 }

export const created = (key: string, revision: number): Compare => ({
  key,
  target: CREATE,
  create_revision: revision,
})

export const absent = (key: string): Compare => created(key, 0)

export const exists = (key: string): Compare => ({ ...absent(key), result: GREATER })

export const none = (range: Range): Compare => ({ ...range, target: CREATE })

/** Was last written at the revision. */
export const written = (key: string, revision: number): Compare => ({
  key,
  target: MOD,
  mod_revision: revision,
})

/** Nothing in the range was written after the revision. */
export const unchangedSince = (range: Range, revision: number): Compare => ({
  ...range,
  target: MOD,
  result: LESS,
  mod_revision: revision + 1,
})

/** Nothing in the range is older than the revision. It must have a key, because etcd takes an empty range for revision 0. */
export const nothingOlder = (range: Range, revision: number): Compare => ({
  ...range,
  target: CREATE,
  result: GREATER,
  create_revision: revision - 1,
})

/** By bytes. False if there is no such key. */
export const valueAfter = (key: string, value: string): Compare => compareValue(key, GREATER, value)

export const valueBefore = (key: string, value: string): Compare => compareValue(key, LESS, value)

const compareValue = (key: string, result: number, value: string): Compare => ({
  key,
  target: VALUE,
  result,
  value,
})

export const get = (key: string, more: Partial<RangeRequest> = {}): Operation => ({ range: { key, ...more } })

export const getAll = (range: Range, more: Partial<RangeRequest> = {}): Operation => ({
  range: { ...range, ...more },
})

/** The one that was created last, before a revision if that is given. */
export const youngest = (range: Range, before = 0): Operation =>
  getAll(range, { ...NEWEST_FIRST, limit: 1, max_create_revision: before })

export const put = (key: string, value: string, lease?: number): Operation => ({
  put: lease === undefined ? { key, value } : { key, value, lease },
})

export const remove = (key: string): Operation => ({ delete: { key } })

export function onCondition(
  compare: readonly Compare[],
  success: readonly Operation[],
  failure: readonly Operation[] = [],
): TxnRequest {
  return { compare, success, failure }
}

export const always = (success: readonly Operation[]): TxnRequest => onCondition([], success)

/** Independent transactions as one: a flat one would fail as a whole when one condition is not met. One alone stays as it is. */
export function together(requests: readonly TxnRequest[]): TxnRequest {
  const [first] = requests
  return first !== undefined && requests.length === 1 ? first : always(requests.map((txn) => ({ txn })))
}

export function answersOf(requests: readonly TxnRequest[], answer: TxnResponse): readonly TxnResponse[] {
  return requests.length === 1 ? [answer] : answer.responses.map(({ txn }) => txn as TxnResponse)
}

/** Whether it only reads, in every branch. */
export function isRead({ success, failure }: TxnRequest): boolean {
  return [...success, ...failure].every(
    ({ range, txn }) => range !== undefined || (txn !== undefined && isRead(txn)),
  )
}

/** Whether it puts no key, in any branch. */
export function putsNothing({ success, failure }: TxnRequest): boolean {
  return [...success, ...failure].every(
    ({ put, txn }) => put === undefined && (txn === undefined || putsNothing(txn)),
  )
}

/** Whether it answers each operation of the branch that was taken. */
export function isAnswerTo({ success, failure }: TxnRequest, { succeeded, responses }: TxnResponse): boolean {
  const operations = succeeded ? success : failure
  return (
    responses.length === operations.length &&
    operations.every(({ range, txn }, index) => {
      const response = responses[index]
      if (txn !== undefined) return response?.txn !== undefined && isAnswerTo(txn, response.txn)
      return (range !== undefined) === (response?.range !== undefined)
    })
  )
}

/** All keys that a transaction has read, in the branches that were taken. */
export function kvsOf({ responses }: TxnResponse): KeyValue[] {
  return responses.flatMap(({ range, txn }) => range?.kvs ?? (txn === undefined ? [] : kvsOf(txn)))
}

/** Keys that begin with this text. */
export function prefixed(key: string): Range {
  const last = key.charCodeAt(key.length - 1)
  // After an ASCII character comes the next one, also in byte order. After any other character, all that UTF-8 can have.
  const range_end = last < 0x7f ? key.slice(0, -1) + String.fromCharCode(last + 1) : `${key}${LAST_TEXT}`
  return { key, range_end }
}

const LAST_TEXT = '\u{10FFFF}'.repeat(64)
