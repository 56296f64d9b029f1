/** What the scripts answer, read. */

import type { LossReason } from '../../base/errors.ts'
import type { RedisReply } from '../../clients/redis/index.ts'
import { SLOT_IS_MOVING } from './scripts/prelude.ts'

export type Answer =
  /** `leftMs` undefined: from the sending of this request. */
  | {
      readonly kind: 'granted'
      readonly grantId: string
      readonly leftMs?: number
      readonly data?: string
    }
  | { readonly kind: 'busy'; readonly retryAfterMs?: number }
  | { readonly kind: 'mismatch'; readonly capacity: number }
  | { readonly kind: 'waiting'; readonly told: Told }
  | { readonly kind: 'queue-full' }
  | { readonly kind: 'abandoned' }
  | { readonly kind: 'released' | 'not-held' | 'prolonged' }
  | { readonly kind: 'lost'; readonly reason: LossReason; readonly detail?: string }
  /** The attempt holds it by another grant. */
  | { readonly kind: 'replaced' }
  /** What belongs beside the lock key, followed by this, is of another type, and not ours. Empty: the mark of the tokens. */
  | { readonly kind: 'unusable'; readonly suffix: string }
  /** The stored last token is not a number below 2^52, so there is no next one. `:t`: the name's own; empty: that of all. */
  | { readonly kind: 'no-token'; readonly suffix: string }
  /** The server refused a command in the middle of the step; or, with a cause, the call has failed that it was in. */
  | { readonly kind: 'failed'; readonly message: string; readonly cause?: unknown }

/** What a waiter knows of its place. */
export interface Told {
  readonly isFirst: boolean
  /** When something can happen by itself; negative if nobody knows. */
  readonly dueMs: number
  /** A foreign client holds the name: its release will wake nobody. */
  readonly isForeign: boolean
}

const busy: Answer = { kind: 'busy' }
const queueFull: Answer = { kind: 'queue-full' }
const abandoned: Answer = { kind: 'abandoned' }
const released: Answer = { kind: 'released' }
const notHeld: Answer = { kind: 'not-held' }
const prolonged: Answer = { kind: 'prolonged' }
const moving: Answer = { kind: 'failed', message: SLOT_IS_MOVING }
const replaced: Answer = { kind: 'replaced' }

/** The answers to a call for so many requests, and what it has to say besides; null if they are not understood. */
export function readReply(reply: RedisReply, count: number): { answers: Answer[]; note?: string } | null {
  const texts = typeof reply === 'string' ? reply.split(' ') : reply
  if (!Array.isArray(texts) || texts.length < count) return null
  const answers: Answer[] = []
  for (let index = 0; index < count; index++) answers.push(readAnswer(texts[index]))
  return texts.length === count ? { answers } : { answers, note: String(texts[count]) }
}

function readAnswer(reply: RedisReply | undefined): Answer {
  if (Array.isArray(reply)) return readList(reply)
  if (reply === 'r') return released
  if (typeof reply !== 'string') throw new TypeError('redis: a script has answered with something unknown')
  const rest = reply.slice(1)
  switch (reply[0]) {
    case 'g':
      return { kind: 'granted', grantId: rest }
    case 'b':
      return rest === '' ? busy : { kind: 'busy', retryAfterMs: Number(rest) }
    case 'm':
      return { kind: 'mismatch', capacity: Number(rest) }
    case 'w':
      return { kind: 'waiting', told: readTold(rest.slice(1)) }
    case 'f':
      return queueFull
    case 'x':
      return abandoned
    case 'n':
      return notHeld
    case 'v':
      return moving
    case 'k':
      return prolonged
    case 'y':
      return { kind: 'unusable', suffix: rest }
    case 'z':
      return { kind: 'no-token', suffix: rest }
    case 'l':
      return rest === 'replaced' ? replaced : { kind: 'lost', reason: rest as LossReason }
    default:
      throw new TypeError('redis: a script has answered with something unknown')
  }
}

/** The answers that are no plain text. */
function readList([kind, detail, left, data]: readonly RedisReply[]): Answer {
  if (kind === 'e') return { kind: 'failed', message: String(detail) }
  if (kind === 'l') return { kind: 'lost', reason: detail as LossReason, detail: String(left) }
  const leftMs = Number(left)
  return {
    kind: 'granted',
    grantId: String(detail),
    ...(leftMs >= 0 && { leftMs }),
    ...(typeof data === 'string' && { data }),
  }
}

function readTold(text: string): Told {
  const [first, due, foreign] = text.split('|')
  return { isFirst: first === '1', dueMs: Number(due), isForeign: foreign === '1' }
}

export function readToken(text: string): bigint | null {
  return text === '' ? null : BigInt(text)
}

/** What is pushed to the channel of a process: a grant, or that somebody has become the first in line. */
export type Push =
  | { readonly kind: 'granted'; readonly id: string; readonly grantId: string; readonly data?: string }
  | { readonly kind: 'first'; readonly id: string; readonly told: Told }

export function readPush(message: string): Push | null {
  const [, kind, id = '', rest = ''] = /^([gh])\|([^|]+)\|(.*)$/s.exec(message) ?? []
  if (kind === 'h') return { kind: 'first', id, told: readTold(`1|${rest}`) }
  const [, grantId = '', hasData, data = ''] = /^([\d.]*)\|([01])(.*)$/s.exec(rest) ?? []
  if (kind !== 'g' || hasData === undefined) return null
  // An older client handed it over without naming the grant: the server knows.
  if (grantId === '') return { kind: 'first', id, told: { isFirst: true, dueMs: 0, isForeign: false } }
  return { kind: 'granted', id, grantId, ...(hasData === '1' && { data }) }
}
