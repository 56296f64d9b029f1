/** Classifies etcd's errors: whether the request may have been applied, and whether another member may answer it. */
import {
  BackendUnavailableError,
  HoldfastError,
  isHoldfastError,
  UnsupportedError,
} from '../../../base/errors.ts'
import { ConnectionError, connectionFailure as describeFailure } from '../../../kit/connect-failure.ts'

/** The status of a gRPC call that is not OK. */
export class EtcdError extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

const RESOURCE_EXHAUSTED = 8
const UNAVAILABLE = 14
const UNAUTHENTICATED = 16

/** The member has refused the request before it did anything, and another member may accept it. */
export function isForAnotherMember(error: unknown): boolean {
  if (error instanceof ConnectionError) return error.outcome === 'not-applied'
  return error instanceof EtcdError && error.status === UNAVAILABLE && REFUSALS.test(error.message)
}

/** A member without a leader; one that only learns; one that is not ready. */
const REFUSALS = /: (no leader|rpc not supported for learner|not capable)$/

/** The token is unknown (it expires when it is not used), or rights were changed since it was issued. */
export function isStaleToken(error: unknown): boolean {
  if (!(error instanceof EtcdError)) return false
  return error.status === UNAUTHENTICATED || /revision of auth store is old$/.test(error.message)
}

export function isLeaseNotFound(error: unknown): boolean {
  return saysInEtcd(error, /: requested lease not found$/)
}

export function isLeaseTaken(error: unknown): boolean {
  return saysInEtcd(error, /: lease already exists$/)
}

/** A full etcd, whose quota is reached: it refuses everything that puts a key or grants a lease, and nothing else. */
export function isFull(error: unknown): boolean {
  const isCertain = isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied'
  return isCertain && saysInEtcd(error, /: database space exceeded$/)
}

/** True if the client's error was made of an error of etcd with this message. */
function saysInEtcd(error: unknown, message: RegExp): boolean {
  const cause = error instanceof HoldfastError ? error.cause : undefined
  return cause instanceof EtcdError && message.test(cause.message)
}

/** Mistakes that only an operator or the program's author can mend. */
const remedies: readonly (readonly [RegExp, string])[] = [
  [
    /database space exceeded$/,
    'Compact and defragment etcd, then disarm the alarm NOSPACE, or raise its quota.',
  ],
  [/authentication failed, invalid user/, 'Correct the user name or the password.'],
  [/permission denied$/, 'Grant the user a role that may read and write the keys below the namespace.'],
  [/user name is empty$/, 'etcd has authentication on: give a user name and a password.'],
  [/user name not found$/, 'Create the user in etcd, or correct its name.'],
  [/authentication is not enabled$/, 'Leave out the user name and the password, or enable authentication.'],
  [
    /too many operations in txn request$/,
    'Start etcd with --max-txn-ops of 128 or more, which is its default.',
  ],
  [/corrupt cluster$/, 'Follow etcd’s guide for a corrupt member. Until then nothing can be trusted.'],
]

/**
 * As a typed error; one of our own stays what it is. Errors that etcd gives before it proposes a request, or in place of
 * its effect, are `not-applied`. Everything that may come after the proposal is `unknown`: time-outs, a lost leader, a stop.
 */
export function asUnavailable(backend: string, error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error
  if (error instanceof ConnectionError)
    return new BackendUnavailableError(backend, error.message, error.outcome, { cause: error })
  if (!(error instanceof EtcdError))
    return new BackendUnavailableError(backend, String(error), 'unknown', { cause: error })
  const { status, message } = error
  const remedy = remedies.find(([pattern]) => pattern.test(message))?.[1]
  // A full database can be mended while the program runs, so the call may be repeated.
  if (remedy !== undefined && status !== RESOURCE_EXHAUSTED)
    return new UnsupportedError(`${backend}: ${message}. ${remedy}`, { cause: error })
  const isRefused = REFUSED_BY_STATUS.includes(status) || isForAnotherMember(error)
  const what = remedy === undefined ? message : `${message}. ${remedy}`.replace(/\.$/, '')
  return new BackendUnavailableError(backend, what, isRefused ? 'not-applied' : 'unknown', { cause: error })
}

/** Invalid argument, not found, exists, denied, exhausted, failed precondition, out of range, unimplemented, unauthenticated. */
const REFUSED_BY_STATUS: readonly number[] = [3, 5, 6, 7, RESOURCE_EXHAUSTED, 9, 11, 12, UNAUTHENTICATED]

const WRONG_PORT = 'Check host and port: the port for clients of etcd is 2379'

const etcd = {
  name: 'etcd',
  protocol: 'HTTP/2',
  ports: WRONG_PORT,
  plain: 'etcd:// (in `hosts`: http://)',
  secure: 'etcds:// (in `hosts`: https://)',
}

/** Why a connection was not made, and what to do. `isConnected`: something has accepted it, with TLS if that was asked for. */
export function connectionFailure(
  host: string,
  isConnected: boolean,
  what: Parameters<typeof describeFailure>[2],
): string {
  return describeFailure(etcd, { host, isSecure: host.startsWith('https:'), isConnected }, what)
}

/** A proxy may have passed the request on before it answered, so the outcome is unknown. */
export function notGrpc(host: string, status: number | undefined): ConnectionError {
  return new ConnectionError(
    `${host} answers with HTTP status ${status}, and not with gRPC: it is not etcd, or a proxy before it. ${WRONG_PORT}`,
    'unknown',
  )
}
