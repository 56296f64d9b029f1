/** Answers as they are stored with a key, and keys as clients send them. */
import { limits } from '../../base/defaults.ts'
import { InvalidArgumentError } from '../../base/errors.ts'
import type { HttpAnswer } from '../../base/http.ts'
import { utf8Length } from '../../base/names.ts'

/** `tooLarge` stands for an answer that was sent once and cannot be repeated. */
export type StoredAnswer =
  | { readonly tooLarge: true }
  | {
      readonly status: number
      readonly headers: Readonly<Record<string, string>>
      readonly text?: string
      readonly base64?: string
    }

/** Room for what `idempotent` puts around the result. */
const WRAPPING_BYTES = 100

export function toStored(
  { status, headers = {}, body }: HttpAnswer,
  kept: ReadonlySet<string>,
): StoredAnswer {
  const stored = {
    status,
    headers: Object.fromEntries(Object.entries(headers).filter(([name]) => kept.has(name.toLowerCase()))),
    ...(typeof body === 'string' && { text: body }),
    ...(body instanceof Uint8Array && { base64: Buffer.from(body).toString('base64') }),
  }
  return utf8Length(JSON.stringify(stored)) > limits.storedBytes - WRAPPING_BYTES
    ? { tooLarge: true }
    : stored
}

/** Null: too large to repeat. */
export function fromStored(stored: StoredAnswer): HttpAnswer | null {
  if ('tooLarge' in stored) return null
  const { status, headers, text, base64 } = stored
  const body = base64 === undefined ? text : Buffer.from(base64, 'base64')
  return { status, headers, body: body === undefined || body.length === 0 ? null : body }
}

export function checkAnswer(answer: HttpAnswer): HttpAnswer {
  const { status, body } = answer ?? {}
  const isBody = body === undefined || body === null || typeof body === 'string' || body instanceof Uint8Array
  if (!Number.isInteger(status) || status < 200 || status > 599 || !isBody)
    throw new InvalidArgumentError(
      'answer',
      'must be what the handler returns: { status, headers?, body? }, with a body of text or bytes.',
    )
  return answer
}

/**
 * The key in a header `Idempotency-Key`: the quoted string of the IETF draft, or plain text without blanks, which means the same.
 * Undefined if it is neither, or longer than a key may be.
 */
export function keyIn(header: string): string | undefined {
  const quoted = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"$/.exec(header)?.[1]
  const key =
    quoted === undefined
      ? /^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]*$/.exec(header)?.[0]
      : quoted.replace(/\\(.)/g, '$1')
  return key === '' || (key?.length ?? 0) > limits.nameBytes ? undefined : key
}
