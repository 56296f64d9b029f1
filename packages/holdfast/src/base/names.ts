/**
 * Names are what users lock: `invoices/2026-11`, `sku:42`. The same rules hold on every engine, so that a name
 * that works on one works after a move to another.
 */
import { limits } from './defaults.ts'
import { InvalidArgumentError } from './errors.ts'

const encoder = new TextEncoder()

export function utf8Length(text: string): number {
  // Most names are short ASCII, for which the length is known without encoding.
  return /^[\x20-\x7e]*$/.test(text) ? text.length : encoder.encode(text).length
}

// C0 and C1 control characters and DEL; line and paragraph separators break logs in the same way.
// biome-ignore lint/suspicious/noControlCharactersInRegex: refusing control characters is the purpose
const controlCharacters = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/

/** Checks text that is stored or shown: labels, notes, namespaces. */
export function checkText(argument: string, text: unknown, maxBytes: number): string {
  if (typeof text !== 'string')
    throw new InvalidArgumentError(argument, `must be a string, not ${typeof text}.`)
  if (text.length === 0) throw new InvalidArgumentError(argument, 'must not be empty.')
  if (!text.isWellFormed())
    throw new InvalidArgumentError(argument, 'must be well-formed Unicode (a lone surrogate was found).')
  const bytes = utf8Length(text)
  if (bytes > maxBytes)
    throw new InvalidArgumentError(argument, `must have at most ${maxBytes} bytes of UTF-8; it has ${bytes}.`)
  if (controlCharacters.test(text))
    throw new InvalidArgumentError(argument, 'must not contain control characters.')
  return text
}

// Nearly all names look like this: plain ASCII, in segments of which none is empty or begins with a dot.
const plainName = /^[A-Za-z0-9_:@-][A-Za-z0-9_:@.-]*(?:\/[A-Za-z0-9_:@-][A-Za-z0-9_:@.-]*)*$/
const PLAIN_NAME_LENGTH = 128

export function checkName(name: unknown, argument = 'name'): string {
  if (typeof name === 'string' && name.length <= PLAIN_NAME_LENGTH && plainName.test(name)) return name
  const text = checkText(argument, name, limits.nameBytes)
  for (const segment of text.split('/')) {
    if (segment === '')
      throw new InvalidArgumentError(
        argument,
        'must not have empty segments: no slash at its start or end, and no two in a row.',
      )
    if (segment === '.' || segment === '..')
      throw new InvalidArgumentError(argument, `must not have the segment ${segment}`)
  }
  return text
}

export function checkNamespace(namespace: unknown): string {
  return checkName(checkText('namespace', namespace, limits.namespaceBytes), 'namespace')
}

/** A prefix for `list` and `watch`: the start of a name, so it may be empty or end with a slash. */
export function checkPrefix(prefix: unknown): string {
  return prefix === undefined || prefix === '' ? '' : checkText('prefix', prefix, limits.nameBytes)
}

/**
 * One path segment for engines whose keys are paths: reversible, and never `.`, `..` or empty. Only characters
 * that every engine takes literally stay as they are.
 */
export function escapeName(name: string): string {
  let escaped = ''
  for (const byte of encoder.encode(name)) {
    const char = String.fromCharCode(byte)
    escaped += /[A-Za-z0-9_:@-]/.test(char) ? char : `%${byte.toString(16).padStart(2, '0')}`
  }
  return escaped
}

export function unescapeName(escaped: string): string {
  return decodeURIComponent(escaped)
}

/** The order in which several names are locked, the same for every client: by their UTF-8 bytes. */
export function compareNames(a: string, b: string): number {
  if (a === b) return 0
  // Below the surrogates, JavaScript's own order is the same, and much faster.
  if (high.test(a) || high.test(b)) return Buffer.compare(Buffer.from(a), Buffer.from(b))
  return a < b ? -1 : 1
}

const high = /[\ud800-\uffff]/
