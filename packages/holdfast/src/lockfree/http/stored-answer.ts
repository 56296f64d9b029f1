/** Answers as they are stored with a key, and keys as clients send them. */
import { limits } from '../../base/defaults.ts'
import { InvalidArgumentError } from '../../base/errors.ts'
import { type HttpAnswer, problem } from '../../base/http.ts'
import { utf8Length } from '../../base/names.ts'

/** `lost` stands for an answer that cannot be repeated: it was sent once, or was none. */
export type StoredAnswer =
  | { readonly lost: 'too-large' | 'none' }
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
    ? { lost: 'too-large' }
    : stored
}

const lost = {
  'too-large': problem(
    409,
    'TOO_LARGE_TO_REPEAT',
    'This request was done, and its answer is too large to be repeated.',
  ),
  none: problem(409, 'ANSWER_LOST', 'This request was done, and its answer could not be stored.'),
} as const

export function fromStored(stored: StoredAnswer): HttpAnswer {
  if ('lost' in stored) return lost[stored.lost]
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
