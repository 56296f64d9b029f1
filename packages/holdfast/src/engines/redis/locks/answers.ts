/** Reads what the scripts answer, and what they publish. */

import { BackendUnavailableError, type LossReason } from '../../../base/errors.ts'
import type { RedisReply } from '../client/index.ts'
import { refusedByServer } from './failures.ts'

export type ScriptAnswer =
  /** `leftMs` undefined: from the sending of this request. */
  | {
      readonly kind: 'granted'
      readonly grantId: string
      readonly leftMs?: number
      readonly data?: string
    }
  | { readonly kind: 'busy'; readonly retryAfterMs?: number }
  | { readonly kind: 'mismatch'; readonly capacity: number }
  | { readonly kind: 'waiting'; readonly outlook: Outlook }
  | { readonly kind: 'queue-full' | 'abandoned' | 'released' | 'not-held' | 'prolonged' }
  | { readonly kind: 'lost'; readonly reason: LossReason; readonly detail?: string }
  /** The attempt holds it by another grant. */
  | { readonly kind: 'replaced' }
  /** The key with this suffix beside the lock key is of another type, and not ours. An empty suffix: the key of the last token. */
  | { readonly kind: 'unusable'; readonly suffix: string }
  /** The stored last token is not a number below 2^52, so there is no next one. `:t`: the name's own; empty: that of all. */
  | { readonly kind: 'no-token'; readonly suffix: string }

/** The outlook of a waiter: whether it is the first, and when its time comes. */
export interface Outlook {
  readonly isFirst: boolean
  /** When time alone changes something; negative if that is not known. */
  readonly dueMs: number
  /** A foreign client holds the name, whose release is not pushed. */
  readonly isForeign: boolean
}

/** Answers without details, by their first letter. */
const plain: { readonly [letter: string]: ScriptAnswer } = {
  f: { kind: 'queue-full' },
  x: { kind: 'abandoned' },
  r: { kind: 'released' },
  n: { kind: 'not-held' },
  k: { kind: 'prolonged' },
}
const busy: ScriptAnswer = { kind: 'busy' }
/** Followed by the microseconds by which the server's clock is behind the last token. */
const BEHIND = 'behind'

/** The answers to the requests of a call, an Error where the server refused one, and maybe a note about the whole call. */
export function readReply(reply: RedisReply): {
  readonly answers: (ScriptAnswer | Error)[]
  readonly note?: string
} {
  const texts = typeof reply === 'string' ? reply.split(' ') : reply
  if (!Array.isArray(texts)) throw notUnderstood()
  const last = texts[texts.length - 1]
  const note = typeof last === 'string' && last.startsWith(BEHIND) ? last.slice(BEHIND.length) : undefined
  const count = note === undefined ? texts.length : texts.length - 1
  const answers: (ScriptAnswer | Error)[] = []
  for (let index = 0; index < count; index++) answers.push(readAnswer(texts[index]))
  return note === undefined ? { answers } : { answers, note }
}

function readAnswer(reply: RedisReply | undefined): ScriptAnswer | Error {
  if (Array.isArray(reply)) return readList(reply)
  const text = String(reply)
  const rest = text.slice(1)
  switch (text[0]) {
    case 'g':
      return { kind: 'granted', grantId: rest }
    case 'b':
      return rest === '' ? busy : { kind: 'busy', retryAfterMs: Number(rest) }
    case 'm':
      return { kind: 'mismatch', capacity: Number(rest) }
    case 'w':
      return { kind: 'waiting', outlook: readOutlook(rest.slice(1)) }
    case 'y':
      return { kind: 'unusable', suffix: rest }
    case 'z':
      return { kind: 'no-token', suffix: rest }
    case 'l':
      return rest === 'replaced' ? { kind: 'replaced' } : { kind: 'lost', reason: rest as LossReason }
    default:
      return plain[text] ?? notUnderstood()
  }
}

function readList([kind, detail, left, data]: readonly RedisReply[]): ScriptAnswer | Error {
  if (kind === 'e') return refusedByServer(String(detail))
  if (kind === 'l') return { kind: 'lost', reason: detail as LossReason, detail: String(left) }
  const leftMs = Number(left)
  return {
    kind: 'granted',
    grantId: String(detail),
    ...(leftMs >= 0 && { leftMs }),
    ...(typeof data === 'string' && { data }),
  }
}

function readOutlook(text: string): Outlook {
  const [first, due, foreign] = text.split('|')
  return { isFirst: first === '1', dueMs: Number(due), isForeign: foreign === '1' }
}

export function notUnderstood(): BackendUnavailableError {
  return new BackendUnavailableError('redis', 'a script has answered with something unknown', 'unknown')
}

export function readToken(text: string): bigint | null {
  return text === '' ? null : BigInt(text)
}

/** A push to the channel of a process: a grant, or that a waiter has become the first. */
export type Push =
  | { readonly kind: 'granted'; readonly id: string; readonly grantId: string; readonly data?: string }
  | { readonly kind: 'first'; readonly id: string; readonly outlook: Outlook }

export const LOOK_NOW: Outlook = { isFirst: true, dueMs: 0, isForeign: false }

export function readPush(message: string): Push | null {
  const [, kind, id = '', rest = ''] = /^([gh])\|([^|]+)\|(.*)$/s.exec(message) ?? []
  if (kind === 'h') return { kind: 'first', id, outlook: readOutlook(`1|${rest}`) }
  const [, grantId = '', hasData, data = ''] = /^([\d.]+)\|([01])(.*)$/s.exec(rest) ?? []
  if (kind !== 'g' || hasData === undefined) return null
  return { kind: 'granted', id, grantId, ...(hasData === '1' && { data }) }
}
