/** Turns refusals of the scripts and the server into typed errors. */
import {
  BackendUnavailableError,
  CapacityMismatchError,
  quote,
  UnsupportedError,
} from '../../../base/errors.ts'
import type { AcquireRequest } from '../../../spi.ts'
import { isDenied, remedyOf } from '../client/index.ts'
import type { ScriptAnswer } from './answers.ts'
import { TOKEN_KEY } from './keys.ts'
import { SLOT_IS_MOVING } from './scripts/prelude.ts'

/**
 * The server refused a command in the middle of a step. Two refusals come only before anything is written. What a step has
 * written before a right was missing ends by itself within one TTL.
 */
export function refusedByServer(message: string): BackendUnavailableError | UnsupportedError {
  const said = message.replace(/\.$/, '')
  const remedy = remedyOf(said)
  if (remedy !== null) return new UnsupportedError(`redis: ${said}. ${remedy}`)
  const isEarly = message.includes('OOM command not allowed') || message === SLOT_IS_MOVING
  return new BackendUnavailableError('redis', said, isEarly ? 'not-applied' : 'unknown')
}

/** Another key was put where ours was: ours is gone. */
export function isOfAnotherType(error: Error): boolean {
  return error.message.includes('WRONGTYPE')
}

/** `UNSUPPORTED` if a right is missing that locks need; any other error as it is. */
export function withoutRights(what: string, error: unknown): unknown {
  if (!isDenied(error)) return error
  return new UnsupportedError(
    `redis: ${what} is denied to this user of the server, and locks cannot do without. ${(error as Error).message}`,
    { cause: error },
  )
}

/** For an acquire that was answered with neither a grant nor a reason to wait. */
export function refusedAcquire({ name, capacity }: AcquireRequest, answer: ScriptAnswer): Error {
  switch (answer.kind) {
    case 'abandoned':
      return new BackendUnavailableError('redis', 'the attempt was abandoned', 'not-applied')
    case 'mismatch':
      return new CapacityMismatchError(name, capacity, answer.capacity)
    case 'unusable':
      return new UnsupportedError(
        `redis: ${whereItIs(name, answer.suffix)} is a key of another type, and not ours. ` +
          (answer.suffix === ''
            ? 'Move that key out of the way, or use another database.'
            : 'Choose other keys (the option `key`), or another namespace.'),
      )
    case 'no-token':
      return new UnsupportedError(
        `redis: ${whereItIs(name, answer.suffix)}, or the server’s clock, is not a number below 2^52, so there is ` +
          'no next token, and nothing was granted. Correct the clock if it is wrong; stop all processes that use this issuer, ' +
          'delete that key, and start them with the same issuer and a higher epoch.',
      )
    default:
      return new BackendUnavailableError('redis', 'a script has answered with something unknown', 'unknown')
  }
}

function whereItIs(name: string, suffix: string): string {
  return suffix === ''
    ? `the last fencing token (the key ${quote(TOKEN_KEY)})`
    : `what Holdfast keeps beside the lock key of ${quote(name)} (the same key, followed by ${suffix})`
}
