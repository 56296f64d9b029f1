/** Options are checked where they enter, and an error says the rule that was broken. */
import { limits } from './defaults.ts'
import { InvalidArgumentError } from './errors.ts'
import { checkText, utf8Length } from './names.ts'

export interface Range {
  readonly min: number
  readonly max?: number
  readonly infinityAllowed?: boolean
}

/** A finite number of milliseconds (or of whatever the option's name says) within a range. */
export function checkNumber(argument: string, value: unknown, range: Range): number {
  const { min, max = Number.MAX_SAFE_INTEGER, infinityAllowed = false } = range
  if (typeof value !== 'number' || Number.isNaN(value))
    throw new InvalidArgumentError(argument, `must be a number, not ${describe(value)}.`)
  if (value === Number.POSITIVE_INFINITY && infinityAllowed) return value
  if (!Number.isFinite(value)) throw new InvalidArgumentError(argument, `must be finite, not ${value}.`)
  if (value < min)
    throw new InvalidArgumentError(argument, `must be at least ${min}, not ${value}.${hint(argument, value)}`)
  if (value > max) throw new InvalidArgumentError(argument, `must be at most ${max}, not ${value}.`)
  return value
}

export function checkInteger(argument: string, value: unknown, range: Range): number {
  const number = checkNumber(argument, value, range)
  if (!Number.isInteger(number) && number !== Number.POSITIVE_INFINITY)
    throw new InvalidArgumentError(argument, `must be a whole number, not ${value}.`)
  return number
}

/** The same of a parameter of a URL, which is text. */
export function checkIntegerText(argument: string, text: string, range: Range): number {
  return checkInteger(argument, /^\d+$/.test(text) ? Number(text) : text, range)
}

export function checkOneOf<T extends string>(argument: string, value: unknown, allowed: readonly T[]): T {
  if (!allowed.includes(value as T))
    throw new InvalidArgumentError(argument, `must be one of ${allowed.join(', ')}, not ${describe(value)}.`)
  return value as T
}

/** An options object must be one, and must not have options that do not exist: a misspelt one would be ignored. */
export function checkKnownOptions(argument: string, options: unknown, known: readonly string[]): void {
  if (options === undefined) return
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw new InvalidArgumentError(argument, `must be an object, not ${describe(options)}.`)
  for (const key of Object.keys(options)) {
    if (!known.includes(key))
      throw new InvalidArgumentError(
        argument,
        `has no option ${JSON.stringify(key)}; it has: ${known.join(', ')}.`,
      )
  }
}

export function checkSignal(signal: unknown): AbortSignal | undefined {
  if (signal === undefined || signal instanceof AbortSignal) return signal
  throw new InvalidArgumentError('signal', 'must be an AbortSignal.')
}

/** The options of a call that takes nothing but a signal. */
export function checkCallOptions(options: { readonly signal?: AbortSignal } | undefined): void {
  checkKnownOptions('options', options, ['signal'])
  checkSignal(options?.signal)
}

/** A backend has an `info` as well. */
export function checkLocker(locker: unknown): void {
  const { info, holder } = Object(locker)
  if (typeof info?.name !== 'string' || typeof holder !== 'string')
    throw new InvalidArgumentError('locker', 'must be a locker, as createLocker and openLocker return it.')
}

export function checkFunction(argument: string, value: unknown): void {
  if (typeof value !== 'function')
    throw new InvalidArgumentError(argument, `must be a function, not ${describe(value)}.`)
}

/** A function that may be left out. */
export function checkCallback<T>(argument: string, callback: T): T {
  if (callback !== undefined) checkFunction(argument, callback)
  return callback
}

export function checkNote(note: unknown): string {
  return checkText('note', note, limits.noteBytes)
}

export function checkData(data: unknown): string {
  if (typeof data !== 'string')
    throw new InvalidArgumentError('data', `must be a string, not ${describe(data)}.`)
  if (!data.isWellFormed()) throw new InvalidArgumentError('data', 'must be well-formed Unicode.')
  // Several engines keep text that ends at a NUL; what works on one must work on all.
  if (data.includes('\0')) throw new InvalidArgumentError('data', 'must not contain the character U+0000.')
  const bytes = utf8Length(data)
  if (bytes > limits.dataBytes)
    throw new InvalidArgumentError(
      'data',
      `must have at most ${limits.dataBytes} bytes of UTF-8; it has ${bytes}.`,
    )
  return data
}

function describe(value: unknown): string {
  if (value === null) return 'null'
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 40))
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : typeof value
}

function hint(argument: string, value: number): string {
  return (argument === 'ttlMs' || argument === 'visibilityMs') && value >= 1
    ? ` It is in milliseconds: ${value} s would be ${value * 1_000}.`
    : ''
}
