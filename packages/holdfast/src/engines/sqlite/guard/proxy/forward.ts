/** Forwards one request to the target: streamed, once, and over a connection of its own. */
import {
  type ClientRequest,
  type IncomingMessage,
  request as requestHttp,
  type ServerResponse,
} from 'node:http'
import { request as requestHttps } from 'node:https'
import { type Clock, judgeLate } from '../../../../base/clock.ts'
import { type Problem, problem, sendNode } from '../../../../base/http.ts'
import { FENCE_HEADER, TOKEN_HEADER } from '../../../../guards/http/read-fence.ts'
import type { RequestEnd } from './gate.ts'

/** Headers of one connection (RFC 9110, 7.6.1), and headers for the proxy alone. `_` counts as `-`, because some services take it so. */
const notForwarded = new Set([
  'connection',
  'expect',
  'host',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  FENCE_HEADER,
  TOKEN_HEADER,
])

export interface Route {
  readonly target: URL
  readonly limitMs: number
  readonly clock: Clock
}

const unreachable = problem(
  503,
  'TARGET_UNREACHABLE',
  'The service could not be reached. Nothing was sent to it.',
  {
    retryAfterS: 1,
    outcome: 'not-applied',
  },
)
const failed = problem(
  502,
  'TARGET_FAILED',
  'The service has not answered in full. The request may have taken effect.',
  {
    outcome: 'unknown',
  },
)
const late = problem(
  504,
  'TARGET_TIMEOUT',
  'The service has not answered in time. The request may still take effect.',
  {
    outcome: 'unknown',
  },
)

/** `token`: of the fence with which the request came; null for a read without one. Resolves when the request has ended. */
export function forward(
  route: Route,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  token: bigint | null,
): Promise<RequestEnd> {
  return new Promise((resolve) => {
    const { target, limitMs, clock } = route
    let isConnected = false
    const isRead = incoming.method === 'GET' || incoming.method === 'HEAD'
    const headers = {
      ...endToEnd(incoming),
      connection: 'close',
      ...(token !== null && { [TOKEN_HEADER]: [`${token}`] }),
      // A body of unknown length must be framed, whatever the method.
      ...(incoming.headers['transfer-encoding'] !== undefined && { 'transfer-encoding': 'chunked' }),
    }
    const send = target.protocol === 'https:' ? requestHttps : requestHttp
    // A connection of its own: on one that was kept, a failure does not say whether the request has arrived.
    const upstream: ClientRequest = send(target, {
      method: incoming.method,
      path: incoming.url,
      headers,
      agent: false,
    })
    const end = (how: RequestEnd, refusal?: Problem) => {
      timer.cancel()
      if (refusal !== undefined) {
        upstream.destroy()
        if (!outgoing.headersSent) sendNode(outgoing, refusal)
        else outgoing.destroy()
      }
      resolve(how)
    }
    const timer = judgeLate(clock, limitMs, () => end('unknown', late))
    upstream.on('socket', (socket) =>
      socket.once(target.protocol === 'https:' ? 'secureConnect' : 'connect', () => (isConnected = true)),
    )
    upstream.on('error', () => (isConnected ? end('unknown', failed) : end('over', unreachable)))
    upstream.on('response', (answer) => {
      try {
        outgoing.writeHead(answer.statusCode ?? 502, {
          ...endToEnd(answer),
          ...(token !== null && isRead && { 'cache-control': 'no-store' }),
        })
      } catch {
        // A status that is none, for example.
        return end('unknown', failed)
      }
      answer.on('end', () => end('over'))
      answer.on('error', () => end('unknown', failed))
      answer.on('close', () => answer.complete || end('unknown', failed))
      // The answer is read to its end also when the client has left, because its end says that the request is over. `pipe` pauses it when
      // the client leaves, so the listener that resumes it is added after that of `pipe`.
      if (outgoing.destroyed) answer.resume()
      else answer.pipe(outgoing).on('close', () => answer.resume())
    })
    incoming.on('error', () => end('unknown', failed))
    incoming.on('close', () => incoming.complete || end('unknown', failed))
    incoming.pipe(upstream)
  })
}

/** A sender may name headers that are for the connection. The length of a body is not: without it the body would be read as requests. */
function endToEnd(message: IncomingMessage): Record<string, string[]> {
  const named = (message.headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase())
  return Object.fromEntries(
    Object.entries(message.headersDistinct).filter(
      (header): header is [string, string[]] =>
        header[1] !== undefined &&
        !notForwarded.has(header[0].replaceAll('_', '-')) &&
        (header[0] === 'content-length' || !named.includes(header[0])),
    ),
  )
}

/** Headers from which some services take a path or a method, in place of those in the request line. */
const overriding =
  /^x[-_](?:original[-_]url|rewrite[-_]url|method[-_]override|http[-_]method(?:[-_]override)?)$/

/** Whether the service can only read the request as the proxy does. */
export function isPlain({ url, headers }: IncomingMessage): boolean {
  return isPlainTarget(url) && !Object.keys(headers).some((name) => overriding.test(name))
}

/**
 * Whether a target has one meaning: the name is taken from it here, and the service reads it again. Dot segments, empty segments,
 * encoded slashes, and letters and digits that are encoded for no reason may lead the service to another resource than the name says.
 */
function isPlainTarget(url: string | undefined): boolean {
  if (url === undefined || !/^\/[\x21-\x7e]*$/.test(url)) return false
  if (/[\\#]|%(?![0-9a-f]{2})|%(?:2f|5c|00|2e)/i.test(url)) return false
  const [path = ''] = url.split('?')
  return !/\/\/|\/\.{1,2}(?:\/|$)|%(?:2d|3[0-9]|[46][1-9a-f]|[57][0-9a]|5f|7e)/i.test(path)
}
