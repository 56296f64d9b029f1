/** Failures of connections that a client of our own makes: what is said of them, and whether a request may have been applied. */
import type { CallOutcome } from '../base/errors.ts'

/** The request did not get an answer. */
export class ConnectionError extends Error {
  readonly outcome: CallOutcome

  constructor(message: string, outcome: CallOutcome, options?: ErrorOptions) {
    super(message, options)
    this.outcome = outcome
  }
}

/** Without an answer a read has changed nothing, so it may be sent again. */
export function asFailedRead(error: unknown): unknown {
  return error instanceof ConnectionError
    ? new ConnectionError(error.message, 'not-applied', { cause: error })
    : error
}

/** An answer that does not follow the protocol. It says nothing about what became of the request. */
export function malformed(host: string, cause: unknown): ConnectionError {
  const what = `${host} sent an answer that is not valid: ${messageOf(cause)}`
  return new ConnectionError(what, 'unknown', { cause })
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** Why no connection was made, and what to do about it, as far as it is the same for every server. Undefined: it is none of these reasons. */
export function connectFailure(
  host: string,
  { code = '', message }: { readonly code?: string; readonly message: string },
  advice: { readonly start: string; readonly ports: string },
): string | undefined {
  if (/CERT|SELF_SIGNED|UNABLE_TO/.test(code) && !/ALERT/.test(code))
    return `${host} has a certificate that is not accepted: ${message}. Give its authority as \`ca\`, or the name in it as \`servername\``
  if (/^(ENOTFOUND|EAI_AGAIN)$/.test(code))
    return `${host} is not known: ${message}. Check the name of the host`
  if (code === 'ECONNREFUSED')
    return `nothing listens at ${host}: ${message}. ${advice.start}. ${advice.ports}`
  return undefined
}

/** An engine in the words of its messages. */
export interface DialledEngine {
  readonly name: string
  /** `HTTP/2`. */
  readonly protocol: string
  /** A sentence without its end: `Check host and port: the port for clients of acme is 4711`. */
  readonly ports: string
  /** How users write an address without TLS, and with it: `acmes:// (in hosts: https://)`. */
  readonly plain: string
  readonly secure: string
}

export interface Dialled {
  readonly host: string
  readonly isSecure: boolean
  /** Something has accepted the connection, with TLS if that was asked for. */
  readonly isConnected: boolean
}

/** The same of a server with and without TLS, for whatever reason. */
export function connectionFailure(
  { name, protocol, ports, plain, secure }: DialledEngine,
  { host, isSecure, isConnected }: Dialled,
  what: (Error & { readonly code?: string }) | 'closed' | 'silent',
): string {
  const said = what === 'closed' ? 'it was closed' : 'no answer in time'
  const { code, message: text } = typeof what === 'object' ? what : { code: undefined, message: said }
  // OpenSSL ends its messages with a new line.
  const message = text.trim()
  const known = connectFailure(
    host,
    { ...(code !== undefined && { code }), message },
    { start: `Start ${name}`, ports },
  )
  if (known !== undefined) return known
  if (/ALERT.*CERT/.test(code ?? ''))
    return `${host} requires a certificate of the client that it accepts: ${message}. Give \`cert\` and \`key\`. ${ports}`
  if (isConnected && isSecure)
    return `${host} has accepted TLS, but does not speak ${protocol}: ${message}. It may require a certificate of the client: give \`cert\` and \`key\`. ${ports}`
  if (isConnected && what === 'silent')
    return `${host} has accepted the connection, but says nothing: it is stopped, overloaded or not ${name}. ${ports}`
  if (isConnected)
    return `${host} has accepted the connection, but does not speak ${protocol}: ${message}. If the port serves TLS, write ${secure}. ${ports}`
  if (isSecure)
    return `${host} does not begin TLS: ${message}. If the port serves no TLS, write ${plain}. ${ports}`
  return `${host} cannot be reached: ${message}. Check that the host is up, and that no firewall is in between`
}
