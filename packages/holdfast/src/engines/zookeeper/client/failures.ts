/** ZooKeeper's error codes: answers, or errors that say whether the request was applied and what to do. */
import {
  BackendUnavailableError,
  type CallOutcome,
  type HoldfastError,
  UnsupportedError,
} from '../../../base/errors.ts'
import type { Refusal } from './messages.ts'

/** These are judged in the order of the writes, so they are answers. */
const refusals: Readonly<Record<number, Refusal>> = {
  [-101]: 'no-node',
  [-103]: 'bad-version',
  [-110]: 'node-exists',
  [-111]: 'not-empty',
  [-112]: 'session-gone',
}

export const SESSION_MOVED = -118
const THROTTLED = -127

/** Mistakes that only an operator or the program's author can mend. */
const remedies: Readonly<Record<number, readonly [what: string, remedy: string]>> = {
  [-6]: [
    'ZooKeeper does not know the request',
    'All members must have version 3.6 or newer. If they have, a proxy before them may not.',
  ],
  [-102]: [
    'these credentials may not do that',
    'Grant them the rights to read, write, create and delete below the chroot, or give the credentials with which its nodes were created.',
  ],
  [-114]: [
    'ZooKeeper does not accept the ACL',
    'With acl: creator the client must have credentials that it accepts: a user name and a password, or a certificate.',
  ],
  [-115]: [
    'ZooKeeper does not accept the credentials',
    'Correct them, and see that the scheme `digest` is enabled.',
  ],
  [-120]: [
    'ZooKeeper allows no ephemeral nodes in this session, because it is local to one member',
    'Set localSessionsUpgradingEnabled=true in ZooKeeper’s configuration, or disable local sessions.',
  ],
  [-124]: [
    'ZooKeeper requires SASL, which Holdfast does not speak',
    'Use a user name and a password (digest), or a certificate.',
  ],
}

/** Judged before anything is written: a session that has moved, throttling, arguments, children of ephemeral nodes, a quota. */
const NOT_APPLIED: readonly number[] = [SESSION_MOVED, THROTTLED, -8, -108, -125]

/** What an error code says: a refusal, or an error. The messages of errors name no paths, which may hold secrets. */
export function judged(backend: string, op: string, code: number): Refusal | HoldfastError {
  const refusal = refusals[code]
  if (refusal !== undefined) return refusal
  const [what, remedy] = remedies[code] ?? []
  if (remedy !== undefined) return new UnsupportedError(`${backend}: ${op}: ${what}. ${remedy}`)
  const outcome = NOT_APPLIED.includes(code) ? 'not-applied' : 'unknown'
  return unavailable(
    backend,
    `${op}: ZooKeeper answered with its code ${code}${meaning[code] ?? ''}`,
    outcome,
  )
}

const meaning: Readonly<Record<number, string>> = {
  [-4]: ' (no connection to a quorum)',
  [-5]: ' (it could not read the request, which may be too large)',
  [-8]: ' (bad arguments)',
  [-125]: ' (the quota is used up)',
  [SESSION_MOVED]: ' (another connection has the session)',
  [THROTTLED]: ' (it is overloaded)',
}

export function unavailable(
  backend: string,
  what: string,
  outcome: CallOutcome,
  cause?: unknown,
): BackendUnavailableError {
  return new BackendUnavailableError(backend, what, outcome, cause === undefined ? {} : { cause })
}

const PORTS = 'Check host and port: the port for clients of ZooKeeper is 2181, with TLS often 2281'

/** Why a connection was not made, and what to do. */
export function connectFailure(
  host: string,
  isSecure: boolean,
  what: (Error & { readonly code?: string }) | 'silent',
): string {
  const { code = '', message } = what === 'silent' ? { message: 'no answer in time' } : what
  if (/CERT|SELF_SIGNED|UNABLE_TO/.test(code) && !/ALERT/.test(code))
    return `${host} has a certificate that is not accepted: ${message}. Give its authority as \`ca\`, or the name in it as \`servername\``
  if (/^(ENOTFOUND|EAI_AGAIN)$/.test(code))
    return `${host} is not known: ${message}. Check the name of the host`
  if (code === 'ECONNREFUSED') return `nothing listens at ${host}: ${message}. Start ZooKeeper. ${PORTS}`
  if (isSecure)
    return `${host} does not begin TLS: ${message}. If the port serves no TLS, write zookeeper://. It may also require a certificate: give \`cert\` and \`key\`. ${PORTS}`
  return `${host} cannot be reached: ${message}. Check that the host is up, and that no firewall is in between`
}
