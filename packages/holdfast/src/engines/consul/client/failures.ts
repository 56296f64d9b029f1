/** Classifies Consul's errors: whether the request may have been applied, and whether another member may answer it. */
import { BackendUnavailableError, HoldfastError, UnsupportedError } from '../../../base/errors.ts'
import { ConnectionError, connectionFailure as describeFailure } from '../../../kit/connect-failure.ts'

/** A status that is no answer to the request. */
export class ConsulError extends Error {
  readonly status: number

  constructor(status: number, text: string) {
    super(text.trim().slice(0, 500) || `HTTP status ${status}`)
    this.status = status
  }
}

/** Said before anything is proposed: nothing can have changed, and another server may know a leader. */
const NO_LEADER = /No cluster leader|node is not the leader|rpc error getting client|No known Consul servers/
const TOO_MANY_CONNECTIONS = 429

/** The member has refused the request before it did anything, and another member may accept it. */
export function isForAnotherMember(error: unknown): boolean {
  if (error instanceof ConnectionError) return error.outcome === 'not-applied'
  if (!(error instanceof ConsulError)) return false
  return error.status === TOO_MANY_CONNECTIONS || (error.status === 500 && NO_LEADER.test(error.message))
}

/** The member has not noticed yet that its leader is gone. */
export function isBeforeElection(error: unknown): boolean {
  return error instanceof ConsulError && /rpc error getting client/.test(error.message)
}

const REFUSED = /Invalid Session TTL|Missing (node|check) |Invalid Node|invalid LockDelay/i
const REFUSED_BY_STATUS: readonly number[] = [400, 403, 404, 405, 413]

/** Rights are missing. A transaction says so as it says what else it refuses. */
export function isDenied(what = ''): boolean {
  return /Permission denied|ACL not found/.test(what)
}

/** Mistakes that only an operator or the program's author can mend. */
const remedies: readonly (readonly [RegExp, string])[] = [
  [/ACL not found/, 'Correct the token.'],
  [
    /Permission denied/,
    'The token needs key_prefix "holdfast/1/<namespace>/" and session_prefix "", both with policy "write".',
  ],
  [/No path to datacenter/, 'Correct `datacenter`.'],
]

/**
 * As a typed error; one of our own stays what it is. An error that Consul gives before it proposes a request is `not-applied`.
 * Everything that may come after the proposal is `unknown`: a lost leader, a lost connection between members.
 */
export function asUnavailable(backend: string, error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error
  if (error instanceof ConnectionError)
    return new BackendUnavailableError(backend, error.message, error.outcome, { cause: error })
  if (!(error instanceof ConsulError))
    return new BackendUnavailableError(backend, String(error), 'unknown', { cause: error })
  const { status, message } = error
  const remedy = remedies.find(([pattern]) => pattern.test(message))?.[1]
  if (remedy !== undefined && status !== TOO_MANY_CONNECTIONS)
    return new UnsupportedError(`${backend}: ${message.replace(/\.$/, '')}. ${remedy}`, { cause: error })
  const isRefused = isForAnotherMember(error) || REFUSED.test(message) || REFUSED_BY_STATUS.includes(status)
  const what = status === 500 || status === TOO_MANY_CONNECTIONS ? message : `${message} (HTTP ${status})`
  return new BackendUnavailableError(backend, what, isRefused ? 'not-applied' : 'unknown', { cause: error })
}

const consul = {
  name: 'Consul',
  protocol: 'HTTP as Consul does',
  ports:
    'Check host and port: the port for clients of Consul is 8500, or 8501 with TLS. It also closes connections above `http_max_conns_per_client`',
  plain: 'consul:// (in `hosts`: http://)',
  secure: 'consuls:// (in `hosts`: https://)',
}

/** Why a connection was not made, and what to do. `isConnected`: something has accepted it, with TLS if that was asked for. */
export function connectionFailure(
  host: string,
  isConnected: boolean,
  what: Parameters<typeof describeFailure>[2],
): string {
  return describeFailure(consul, { host, isSecure: host.startsWith('https:'), isConnected }, what)
}
