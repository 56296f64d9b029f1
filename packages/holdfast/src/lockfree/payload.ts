/** Payloads: when two requests are the same, and how results are stored. */
import { createHash } from 'node:crypto'
import { limits } from '../base/defaults.ts'
import { InvalidArgumentError } from '../base/errors.ts'
import { checkName, utf8Length } from '../base/names.ts'

/** Null: there is no payload. Objects with the same members in another order are the same. */
export function payloadDigest(payload: unknown): string | null {
  if (payload === undefined) return null
  const hash = createHash('sha256')
  const bytes = bytesOf(payload)
  if (bytes !== null) return hash.update('bytes:').update(bytes).digest('base64url')
  return hash.update('json:').update(canonicalJson(payload)).digest('base64url')
}

function bytesOf(payload: unknown): Uint8Array | null {
  if (ArrayBuffer.isView(payload))
    return new Uint8Array(payload.buffer, payload.byteOffset, payload.byteLength)
  return payload instanceof ArrayBuffer ? new Uint8Array(payload) : null
}

/**
 * Values that JSON would turn into something that others are turned into as well: two payloads would be taken for one. In a list,
 * what is missing would become null; a member of an object that is undefined is as good as none, and is let through.
 */
function isDropped(holder: unknown, given: unknown, value: unknown): boolean {
  if (value === undefined) return Array.isArray(holder)
  // A date that is none writes itself as null.
  if (value === null) return given !== null
  if (typeof value === 'number') return !Number.isFinite(value)
  if (typeof value === 'function' || typeof value === 'symbol') return true
  if (typeof value !== 'object' || Array.isArray(value)) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype !== Object.prototype && prototype !== null
}

function canonicalJson(payload: unknown): string {
  let text: string | undefined
  try {
    text = JSON.stringify(payload, function (this: Record<string, unknown>, key, value: unknown) {
      if (isDropped(this, this[key], value)) throw new TypeError('JSON would drop what it contains')
      return typeof value === 'object' && value !== null && !Array.isArray(value)
        ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
        : value
    })
  } catch (cause) {
    throw new InvalidArgumentError('payload', REFUSED, { cause })
  }
  if (text === undefined) throw new InvalidArgumentError('payload', REFUSED)
  return text
}

const REFUSED = 'must be what JSON can express, or bytes; a list must have a value at every index.'

/** JSON escapes what a database could not store in a text. */
export function toJson(argument: string, value: unknown): string {
  if (typeof (value as { then?: unknown } | null | undefined)?.then === 'function')
    throw new InvalidArgumentError(argument, 'must not be a promise: an `await` is missing.')
  let text: string | undefined
  try {
    text = JSON.stringify({ value })
  } catch (cause) {
    throw new InvalidArgumentError(argument, 'must be what JSON can express, to be stored.', { cause })
  }
  const bytes = utf8Length(text)
  if (bytes > limits.storedBytes)
    throw new InvalidArgumentError(
      argument,
      `must have at most ${limits.storedBytes} bytes as JSON, to be stored; it has ${bytes}.`,
    )
  return text
}

export function fromJson(text: string): unknown {
  return (JSON.parse(text) as { value?: unknown }).value
}

/** A name for a fence, from parts of which the last may be any text. */
export function resourceName(...parts: readonly [...string[], string]): string {
  const name = parts.join('/')
  try {
    return checkName(name)
  } catch {
    // A key that is too long, or not a name, has a digest that is one, and is as different from others as the key is.
    const digest = createHash('sha256')
      .update(String(parts.at(-1)))
      .digest('base64url')
    return [...parts.slice(0, -1), `sha256:${digest}`].join('/')
  }
}
