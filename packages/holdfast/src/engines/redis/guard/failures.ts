/**
 * Mistakes in an effect of the user's: Lua that does not compile, a key that holds something else. These are
 * mistakes in what was handed in, and the same call would fail again. Redis undoes nothing, and the errors say so.
 */
import {
  BackendUnavailableError,
  InvalidArgumentError,
  isHoldfastError,
  quote,
} from '../../../base/errors.ts'

/** Where it happened, in front of what happened. */
const scriptLine = /^(?:@?user_script: ?(\d+): )+-?/
/** The server's own trouble, also when it met a command of the effect. */
const troubles = /^(OOM|READONLY|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|LOADING)\b/
/** Errors that a single command raises before it writes anything. */
const misfits = /^(WRONGTYPE\b|ERR (value|increment|decrement))/

/** For an error of `RedisConnection.run`: what to throw instead if the script did not compile, so that nothing has run. */
export function compileErrorOf(error: unknown, argument: string): InvalidArgumentError | null {
  if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') || !(error.cause instanceof Error)) return null
  const [, message] =
    /Error compiling script \(new function\): (.*?)(?: script: \w+, on .*)?$/s.exec(error.cause.message) ?? []
  if (message === undefined) return null
  const said = message.replace(scriptLine, 'line $1: ')
  return new InvalidArgumentError(argument, `is not Lua that the server can compile: ${sentence(said)}`, {
    cause: error.cause,
  })
}

/** For an effect that raised an error after the guard had let it in. */
export function failureOfEffect(
  blame: { readonly argument: string; readonly what: string },
  message: string,
): InvalidArgumentError | BackendUnavailableError {
  const [plain, placed] = [message.replace(scriptLine, ''), message.replace(scriptLine, 'line $1: ')]
  const isLua = blame.argument === 'source'
  const cause = new Error(isLua ? placed : plain)
  if (troubles.test(plain))
    return new BackendUnavailableError('redis', `the effect: ${plain}`, 'unknown', { cause })
  const advice =
    !isLua && misfits.test(plain)
      ? 'Nothing was written; the fence counts as seen.'
      : 'What it wrote before that stays, because Redis does not undo it; the fence counts as seen.'
  return new InvalidArgumentError(blame.argument, `${blame.what}: ${sentence(cause.message)} ${advice}`, {
    cause,
  })
}

/** For a read in a transaction. */
export function unreadable(key: string, message: string): InvalidArgumentError | BackendUnavailableError {
  const cause = new Error(message)
  if (troubles.test(message)) return new BackendUnavailableError('redis', message, 'not-applied', { cause })
  return new InvalidArgumentError('key', `${quote(key)} cannot be read as text: ${sentence(message)}`, {
    cause,
  })
}

function sentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`
}
