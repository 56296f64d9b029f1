/** What the answers of the scripts that nobody hopes for become for the caller. */
import {
  BackendUnavailableError,
  CapacityMismatchError,
  isHoldfastError,
  quote,
  UnsupportedError,
} from '../../core/errors.ts'
import type { AcquireRequest } from '../../spi.ts'
import type { Answer } from './answers.ts'
import { TOKEN_KEY } from './keys.ts'

export function failureOf({ message, cause }: Extract<Answer, { kind: 'failed' }>): Error {
  return isHoldfastError(cause)
    ? cause
    : new BackendUnavailableError('redis', message.replace(/\.$/, ''), 'unknown', { cause })
}

/** Somebody else has put another key in the place of ours: what was there is gone. */
export function isOfAnotherType(message: string): boolean {
  return message.includes('WRONGTYPE')
}

export function unexpected(request: AcquireRequest, answer: Answer): Error {
  if (answer.kind === 'mismatch')
    return new CapacityMismatchError(request.name, request.capacity, answer.capacity)
  if (answer.kind === 'unusable')
    return new UnsupportedError(`redis: ${whatIsUnusable(request.name, answer.suffix)}`)
  return new BackendUnavailableError('redis', 'a script has answered with something unknown', 'unknown')
}

function whatIsUnusable(name: string, suffix: string): string {
  return suffix === ''
    ? `the key ${quote(TOKEN_KEY)}, where the last fencing token is kept, is a key of another type, and not ours. Move ` +
        'that key out of the way, or use another database.'
    : `what Holdfast keeps beside the lock key of ${quote(name)} (the same key, followed by ${suffix}) is a key of another ` +
        'type, and not ours. Choose other keys (the option `key`), or another namespace.'
}
