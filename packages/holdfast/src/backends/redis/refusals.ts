/** What the answers of the scripts that nobody hopes for become for the caller. */
import {
  BackendUnavailableError,
  type CallOutcome,
  CapacityMismatchError,
  isHoldfastError,
  quote,
  UnsupportedError,
} from '../../base/errors.ts'
import type { AcquireRequest } from '../../spi.ts'
import type { Answer } from './answers.ts'
import { TOKEN_KEY } from './keys.ts'
import { SLOT_IS_MOVING } from './scripts/prelude.ts'

export function failureOf({ message, cause }: Extract<Answer, { kind: 'failed' }>): Error {
  return isHoldfastError(cause)
    ? cause
    : new BackendUnavailableError('redis', message.replace(/\.$/, ''), outcomeOfRefusal(message), { cause })
}

/** These are said only where nothing has been written yet. */
function outcomeOfRefusal(message: string): CallOutcome {
  return message.includes('OOM command not allowed') || message === SLOT_IS_MOVING ? 'not-applied' : 'unknown'
}

/** Somebody else has put another key in the place of ours: what was there is gone. */
export function isOfAnotherType(message: string): boolean {
  return message.includes('WRONGTYPE')
}

/**
 * `UNSUPPORTED` if a script of a watch may not run one of its commands; any other error as it is. Servers before 7.2 say that
 * without the code NOPERM, and do not name the command.
 */
export function deniedToWatch(error: unknown): unknown {
  const [denial] = /user executing the script can't .*?(?= script:|\.|$)/.exec(String(error)) ?? []
  if (denial === undefined || !isHoldfastError(error, 'BACKEND_UNAVAILABLE')) return error
  return new UnsupportedError(
    `redis: a watch is refused: the ${denial}. Grant the rights to the user of the client: ACL SETUSER <user> +@scripting ` +
      '+@pubsub +@read +@write +@connection +time ~<prefix of the client>holdfast:* &holdfast:*',
    { cause: error },
  )
}

export function unexpected(request: AcquireRequest, answer: Answer): Error {
  if (answer.kind === 'mismatch')
    return new CapacityMismatchError(request.name, request.capacity, answer.capacity)
  if (answer.kind === 'unusable')
    return new UnsupportedError(`redis: ${whatIsUnusable(request.name, answer.suffix)}`)
  if (answer.kind === 'no-token')
    return new UnsupportedError(
      `redis: ${whereTheMarkIs(request.name, answer.suffix)}, or the server’s clock, is not a number below 2^52, so there is ` +
        'no next token, and nothing was granted. Correct the clock if it is wrong; stop all processes that use this issuer, ' +
        'delete that key, and start them with the same issuer and a higher epoch.',
    )
  return new BackendUnavailableError('redis', 'a script has answered with something unknown', 'unknown')
}

function whereTheMarkIs(name: string, suffix: string): string {
  return suffix === ''
    ? `the last fencing token (the key ${quote(TOKEN_KEY)})`
    : `the last fencing token of ${quote(name)} (its lock key, followed by ${suffix})`
}

function whatIsUnusable(name: string, suffix: string): string {
  return suffix === ''
    ? `the key ${quote(TOKEN_KEY)}, where the last fencing token is kept, is a key of another type, and not ours. Move ` +
        'that key out of the way, or use another database.'
    : `what Holdfast keeps beside the lock key of ${quote(name)} (the same key, followed by ${suffix}) is a key of another ` +
        'type, and not ours. Choose other keys (the option `key`), or another namespace.'
}
