/**
 * Fences as text, signed or not. A guard that strangers can reach must require the signature: a forged huge token
 * would lock all holders out.
 *
 *   unsigned   hf1/<issuer>/<name>/<mode>/<token>/<grant>
 *   signed     hf1/<issuer>/<name>/<mode>/<token>/<grant>/s1/<key id>/<HMAC-SHA-256 of all that stands before>
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { limits } from './defaults.ts'
import { FenceInvalidError, InvalidArgumentError } from './errors.ts'
import { emit, hasListeners } from './events.ts'
import { type Fence, fenceText, isFence, readFenceText } from './fence.ts'
import { checkText } from './names.ts'
import { checkKnownOptions } from './options.ts'

export interface FenceKey {
  /** Names the key in the text, so that keys can be changed one after the other. */
  readonly id: string
  /** At least 32 bytes that strangers do not know. */
  readonly secret: Uint8Array
}

const SIGNATURE_VERSION = 's1'

/** The text form of a fence, for a header or a message; signed if a key is given. */
export function formatFence(fence: Fence, options: { readonly signWith?: FenceKey } = {}): string {
  if (!isFence(fence)) throw new FenceInvalidError('not-a-fence')
  checkKnownOptions('options', options, ['signWith'])
  const text = fenceText(fence)
  if (options.signWith === undefined) return text
  const key = checkKey(options.signWith)
  const signed = `${text}/${SIGNATURE_VERSION}/${key.id}`
  return `${signed}/${signatureOf(signed, key).toString('base64url')}`
}

export interface ParseFenceOptions {
  readonly keys?: readonly FenceKey[]
  /** The name of the guard that the text is shown to: a text that is refused is told as `guard-refused` with the reason `invalid`. */
  readonly guard?: string
}

/**
 * Reads a fence from its text. With `keys`, only a fence that one of them signed is accepted; without, a signature
 * that happens to be there is an error, because it was not verified.
 */
export function parseFence(text: string, options: ParseFenceOptions = {}): Fence {
  checkKnownOptions('options', options, ['keys', 'guard'])
  const { keys, guard } = options
  if (keys !== undefined && !Array.isArray(keys))
    throw new InvalidArgumentError('keys', 'must be a list of keys.')
  if (guard !== undefined) checkText('guard', guard, limits.nameBytes)
  try {
    return readSigned(text, keys)
  } catch (error) {
    if (guard !== undefined) tellInvalid(guard, error)
    throw error
  }
}

/** Tells that a resource refused what it was sent as a fence; nothing in a text that was not verified is to be believed. */
export function tellInvalid(guard: string, error: unknown): void {
  if (error instanceof FenceInvalidError && hasListeners('guard-refused'))
    emit('guard-refused', { guard, name: null, token: null, reason: 'invalid', highest: null })
}

function readSigned(text: string, given: readonly FenceKey[] | undefined): Fence {
  if (typeof text !== 'string' || text.length > limits.fenceTextBytes)
    throw new FenceInvalidError('malformed')
  const parts = text.split('/')
  const isSigned = parts.length === 9 && parts[6] === SIGNATURE_VERSION
  if (given === undefined) {
    if (isSigned)
      throw new FenceInvalidError('unknown-key', 'it is signed, and no keys were given to verify it with')
    return readFenceText(text)
  }
  const keys = given.map(checkKey)
  if (!isSigned) {
    readFenceText(text)
    throw new FenceInvalidError('unsigned')
  }
  const key = keys.find((candidate) => candidate.id === parts[7])
  if (key === undefined) throw new FenceInvalidError('unknown-key')
  const signature = Buffer.from(parts[8] ?? '', 'base64url')
  const expected = signatureOf(parts.slice(0, 8).join('/'), key)
  const genuine = signature.length === expected.length && timingSafeEqual(signature, expected)
  if (!genuine || signature.toString('base64url') !== parts[8]) throw new FenceInvalidError('bad-signature')
  return readFenceText(parts.slice(0, 6).join('/'))
}

function signatureOf(text: string, key: FenceKey): Buffer {
  return createHmac('sha256', key.secret).update(text).digest()
}

export function checkKey(key: FenceKey): FenceKey {
  if (typeof key?.id !== 'string' || !/^[A-Za-z0-9_-]{1,64}$/.test(key.id))
    throw new InvalidArgumentError('key.id', 'must be 1–64 characters of A–Z, a–z, 0–9, _ and -.')
  if (!(key.secret instanceof Uint8Array) || key.secret.length < limits.minFenceSecretBytes)
    throw new InvalidArgumentError(
      'key.secret',
      `must be a Uint8Array of at least ${limits.minFenceSecretBytes} bytes.`,
    )
  return key
}
