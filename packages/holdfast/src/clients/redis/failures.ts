/**
 * What an error of a client library says about the command. `not-applied` only where that is certain; everything else
 * may have been applied, or may be yet: clients queue commands while they are offline, and send again what was not
 * answered when the connection broke.
 */
import { BackendUnavailableError, type CallOutcome } from '../../core/errors.ts'

/** Refusals of the server that come before a script has written anything. */
const refusals = new Set([
  'BUSY',
  'CLUSTERDOWN',
  'CROSSSLOT',
  'LOADING',
  'MASTERDOWN',
  'MISCONF',
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

/** The error to throw. Its cause says what the library said, without the arguments of the command: they hold secrets. */
export function redisFailure(backend: string, what: string, error: unknown): BackendUnavailableError {
  const message = (error instanceof Error ? error.message : String(error)).replace(/\.$/, '')
  return new BackendUnavailableError(backend, `${what}: ${message}`, outcomeOfFailure(error), {
    cause: withoutSecrets(error),
  })
}

function withoutSecrets(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const clean = new Error(error.message)
  clean.name = error.name
  if (error.stack !== undefined) clean.stack = error.stack
  return clean
}
