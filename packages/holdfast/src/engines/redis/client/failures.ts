/**
 * Classifies errors of a client library. `not-applied` only where that is certain; everything else
 * may have been applied, or may be yet: clients queue commands while they are offline, and send again what was not
 * answered when the connection broke.
 */
import {
  BackendUnavailableError,
  type CallOutcome,
  type HoldfastError,
  UnsupportedError,
} from '../../../base/errors.ts'

/** Refusals of the server that come before a script has written anything. */
const refusals = new Set([
  'ASK',
  'BUSY',
  'CLUSTERDOWN',
  'CROSSSLOT',
  'LOADING',
  'MASTERDOWN',
  'MISCONF',
  'MOVED',
  'NOAUTH',
  'NOPERM',
  'NOREPLICAS',
  'NOSCRIPT',
  'OOM',
  'READONLY',
  'TRYAGAIN',
  'WRONGPASS',
])

/** Errors of the client libraries that are thrown before the command leaves, and for nothing else. */
const neverSent = [/enableOfflineQueue options is false/, /^The queue is full$/]
const neverSentNames = new Set(['ClientClosedError', 'ClientOfflineError'])

/** The code at the start of a server's error, also where an old server wraps it: `ERR Error running script …: -OOM …`. */
export function serverCodeOf(error: unknown): string | null {
  if (!(error instanceof Error) || !isServerError(error)) return null
  const [, code = null] = /^([A-Z][A-Z0-9]+)\b/.exec(error.message) ?? []
  const [, wrapped = code] = /-([A-Z]{3,}) /.exec(error.message) ?? []
  return code === 'ERR' ? wrapped : code
}

export function isServerError(error: Error): boolean {
  // ioredis: ReplyError. node-redis: ErrorReply and what descends from it, none of which sets `name` in all versions.
  for (let type = error; type !== null && type !== Error.prototype; type = Object.getPrototypeOf(type)) {
    if (/^(ReplyError|ErrorReply|SimpleError|BlobError)$/.test(type.constructor?.name ?? '')) return true
  }
  return error.name === 'ReplyError'
}

export function outcomeOfFailure(error: unknown): CallOutcome {
  const code = serverCodeOf(error)
  if (code !== null) return refusals.has(code) ? 'not-applied' : 'unknown'
  if (!(error instanceof Error)) return 'unknown'
  const sentNothing =
    neverSentNames.has(error.constructor.name) || neverSent.some((pattern) => pattern.test(error.message))
  return sentNothing ? 'not-applied' : 'unknown'
}

/**
 * Whether the server said that a right is missing. The code NOPERM is not there when a command of a script is refused, and
 * servers before 7.2 do not name the command then.
 */
export function isDenial(said: string): boolean {
  return /\bNOPERM\b|\bACL failure in script\b|\buser executing the script can't\b/.test(said)
}

/** Advice for a mistake that stays until it is corrected, by the server's message; null if it is something else. */
export function remedyOf(said: string): string | null {
  if (/\b(WRONGPASS|NOAUTH)\b|\bERR invalid password/.test(said))
    return 'Give the right user and password, in the URL (redis://user:password@host:port) or to the client.'
  if (/\bERR (DB index is out of range|invalid DB index)/.test(said))
    return 'Choose a database that the server has (its setting databases), in the URL or in the options of the client.'
  if (!isDenial(said)) return null
  const [, command] = /run the '([^']+)' command/.exec(said) ?? []
  if (command !== undefined) return `Grant it to the user of the client: ACL SETUSER <user> +${command}.`
  const [, what] = /(?:access|publish to) (?:at least )?(?:a|the|one of the) (key|channel)/.exec(said) ?? []
  if (what === 'key')
    return 'Grant the keys to the user of the client: ACL SETUSER <user> ~<pattern>; those of locks begin with holdfast:.'
  if (what === 'channel')
    return 'Grant the channels to the user of the client: ACL SETUSER <user> &<pattern>; those of locks begin with holdfast:.'
  return (
    'Grant the rights to the user of the client: ACL SETUSER <user> ' +
    '+@scripting +@pubsub +@read +@write +@connection +time. (Servers before 7.2 do not say which one is missing.)'
  )
}

/**
 * The error to throw: `UNSUPPORTED` if trying again cannot help. Its cause says what the library said, without the
 * arguments of the command: they hold secrets.
 */
export function redisFailure(backend: string, what: string, error: unknown): HoldfastError {
  const said = reasonOf(error)
  const outcome = outcomeOfFailure(error)
  const remedy = error instanceof Error && isServerError(error) ? remedyOf(said) : null
  const options = { cause: withoutSecrets(error) }
  return remedy === null
    ? new BackendUnavailableError(backend, `${what}: ${said}`, outcome, options)
    : new UnsupportedError(`${backend}: ${what}: ${said}. ${remedy}`, options)
}

/** For a client that could not connect, so that certainly nothing was applied. `error`: what it said, if anything. */
export function notConnected(
  backend: string,
  what: string,
  error: unknown,
  advice = adviceFor(error, 'of the client'),
): HoldfastError {
  const said = error === undefined ? '' : ` (${reasonOf(error)})`
  const remedy = remedyOf(said)
  const options = error === undefined ? {} : { cause: withoutSecrets(error) }
  return remedy === null
    ? new BackendUnavailableError(backend, `${what}${said}. ${advice}`, 'not-applied', options)
    : new UnsupportedError(`${backend}: ${what}${said}. ${remedy}`, options)
}

/** Advice for a client that cannot connect; without the last full stop. `whose`: the host and port. */
export function adviceFor(error: unknown, whose: string): string {
  const check = `Check that Redis runs, and the host and port ${whose}`
  return error === undefined || isHangUp.test(reasonOf(error))
    ? `${check}: what listens there has ended the connection, so it may not speak Redis, or want TLS (rediss://)`
    : check
}

/** The server is no Redis: it took the connection, and then ended it, or answered something else. */
const isHangUp = /\b(EPIPE|ECONNRESET)\b|closed|Protocol error|RESP type/i

export function withoutSecrets(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const clean = new Error(withoutArguments(error.message))
  clean.name = error.name
  if (error.stack !== undefined) clean.stack = withoutArguments(error.stack)
  return clean
}

/** An error of a client in one line, without a full stop. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // An address that leads to several gives an error of errors, without a text of its own.
  const inner = error instanceof AggregateError ? error.errors.map(reasonOf).join(', ') : ''
  // A Cluster of ioredis says of what went wrong only that it did.
  const { lastNodeError, code } = error as { lastNodeError?: unknown; code?: unknown }
  const text = (error.message || inner || String(code ?? error.name)).replace(/\.$/, '')
  return withoutArguments(lastNodeError instanceof Error ? `${text}: ${reasonOf(lastNodeError)}` : text)
}

/** A server that does not know a command repeats its arguments: of AUTH, the password. */
function withoutArguments(message: string): string {
  return message.replace(/,? with args beginning with:[^\n]*/g, '')
}
