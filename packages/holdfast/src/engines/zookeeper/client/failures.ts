/** ZooKeeper's error codes: answers, or errors that say whether the request was applied and what to do. */
import {
  BackendUnavailableError,
  type CallOutcome,
  type HoldfastError,
  UnsupportedError,
} from '../../../base/errors.ts'
import { type Dialled, connectionFailure as describeFailure } from '../../../kit/connect-failure.ts'
import type { Refusal } from './messages.ts'

/** These are judged in the order of the writes, so they are answers. */
const refusals: Readonly<Record<number, Refusal>> = {
  [-101]: 'no-node',
  [-103]: 'bad-version',
  [-110]: 'node-exists',
  [-111]: 'not-empty',
  [-112]: 'session-gone',
}

/** Another connection has the session. */
export const SESSION_MOVED = -118

/** Mistakes that only an operator or the program's author can mend. */
const remedies: Readonly<Record<number, string>> = {
  [-6]: 'does not know the request. All members must have version 3.6 or newer',
  [-102]:
    'does not allow that to these credentials. Give those with which the nodes were created, or grant the rights below the chroot',
  [-114]:
    'does not accept the ACL. acl: creator needs credentials: a user name and a password, or a certificate',
  [-115]: 'does not accept the credentials. Correct them, and see that the scheme `digest` is enabled',
  [-120]: 'allows no ephemeral nodes in local sessions. Set localSessionsUpgradingEnabled=true',
  [-124]:
    'requires SASL, which Holdfast does not speak. Use a user name and a password (digest), or a certificate',
}

/** Judged before anything is written. */
const notApplied: Readonly<Record<number, string>> = {
  [-8]: 'does not accept the arguments',
  [-108]: 'allows no children of ephemeral nodes',
  [SESSION_MOVED]: 'serves the session on another connection',
  [-125]: 'has a quota that is used up',
  [-127]: 'is overloaded',
}

/** The meaning of an error code. Errors name no paths, which may hold secrets. */
export function judged(backend: string, op: string, code: number): Refusal | HoldfastError {
  const refusal = refusals[code]
  if (refusal !== undefined) return refusal
  const remedy = remedies[code]
  if (remedy !== undefined) return new UnsupportedError(`${backend}: ${op}: ZooKeeper ${remedy}.`)
  const outcome = code in notApplied ? 'not-applied' : 'unknown'
  return unavailable(
    backend,
    `${op}: ZooKeeper ${notApplied[code] ?? `answered with its error ${code}`}`,
    outcome,
  )
}

export function unavailable(
  backend: string,
  what: string,
  outcome: CallOutcome,
  cause?: unknown,
): BackendUnavailableError {
  return new BackendUnavailableError(backend, what, outcome, cause === undefined ? {} : { cause })
}

const zooKeeper = {
  name: 'ZooKeeper',
  protocol: "ZooKeeper's protocol",
  ports:
    'Check host and port: the port for clients of ZooKeeper is 2181, with TLS often 2281. It also closes connections above `maxClientCnxns`, and while it follows no leader',
  plain: 'zookeeper://',
  secure: 'zookeepers:// (or give `tls`)',
}

/** Why nothing serves at the address, and what to do. */
export function connectionFailure(dialled: Dialled, failure: Error | 'closed' | 'silent'): string {
  return describeFailure(zooKeeper, dialled, failure)
}
