/** HTTP as far as middleware needs it: headers of any server, and problem documents (RFC 9457). */
import { type CallOutcome, textOf } from './errors.ts'
import { warnAgain } from './events.ts'

/** Headers of a fetch `Request`, or of node's `IncomingMessage`, whose names are in lower case. */
export type HeaderSource =
  | { get(name: string): string | null }
  | { readonly [name: string]: string | readonly string[] | undefined }

/** Header of a request; null if it is not there. One that was sent twice comes out with a comma, which no reader here accepts. */
export function headerOf(headers: HeaderSource, name: string): string | null {
  if (typeof headers.get === 'function') return headers.get(name) ?? null
  const value = (headers as { readonly [name: string]: string | readonly string[] | undefined })[name]
  return value === undefined || typeof value === 'string' ? (value ?? null) : value.join(', ')
}

/** The body of a refusal. Clients go by `code`: it is the code of an error of Holdfast, or one that the page of the middleware names. */
export interface ProblemDocument {
  readonly type: 'about:blank'
  readonly title: string
  readonly status: number
  /** Fixed text for each code: neither a fence, a token nor the text of an error is shown to a stranger. */
  readonly detail: string
  readonly code: string
  readonly retryable: boolean
  /** Whether a request that failed may have taken effect. */
  readonly outcome?: CallOutcome
}

/** An answer, ready to be sent by any server. */
export interface HttpAnswer {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array | null
}

/** A refusal, ready to be sent. `body` is the text of `document`. */
export interface Problem extends HttpAnswer {
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  readonly document: ProblemDocument
}

const titles = {
  400: 'Bad Request',
  403: 'Forbidden',
  409: 'Conflict',
  413: 'Content Too Large',
  422: 'Unprocessable Content',
  428: 'Precondition Required',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
} as const

/** `retryAfterS`: in how many seconds the client may send the same request again. Without it the problem is not retryable. */
export function problem(
  status: keyof typeof titles,
  code: string,
  detail: string,
  { retryAfterS, outcome }: { readonly retryAfterS?: number; readonly outcome?: CallOutcome } = {},
): Problem {
  const retryable = retryAfterS !== undefined
  const document = {
    type: 'about:blank',
    title: titles[status],
    status,
    detail,
    code,
    retryable,
    ...(outcome !== undefined && { outcome }),
  } as const
  const headers = { 'content-type': 'application/problem+json', 'cache-control': 'no-store' }
  return {
    status,
    headers: retryable ? { ...headers, 'retry-after': String(Math.ceil(retryAfterS)) } : headers,
    body: JSON.stringify(document),
    document,
  }
}

/** A request of node:http, Express or Fastify, as far as middleware reads it. */
export interface NodeRequest {
  readonly method?: string | undefined
  readonly url?: string | undefined
  readonly headers: HeaderSource
}

/** A response of node:http or Express. */
export interface NodeResponse {
  statusCode: number
  readonly headersSent: boolean
  readonly writableEnded: boolean
  readonly destroyed: boolean
  setHeader(name: string, value: string | number): unknown
  removeHeader(name: string): void
  end(body?: string | Uint8Array): unknown
  destroy(): unknown
}

/** A reply of Fastify. */
export interface FastifyReply {
  readonly sent: boolean
  code(status: number): unknown
  header(name: string, value: string): unknown
  removeHeader(name: string): unknown
  send(payload?: unknown): unknown
}

/** A fetch `Request`, or a context that carries one, as Hono's does. */
export type WebInput = Request | { readonly req: { readonly raw: Request } }

export function requestOf(input: WebInput): Request {
  return input instanceof Request ? input : input.req.raw
}

/** Headers about a body that a handler may have announced before it threw. */
const aboutAnotherBody = ['content-encoding', 'content-length', 'etag']

export function sendNode(response: NodeResponse, { status, headers = {}, body }: HttpAnswer): void {
  response.statusCode = status
  for (const name of aboutAnotherBody) response.removeHeader(name)
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
  response.end(body ?? undefined)
}

/**
 * An error that is the server's: it goes to `next`. Where there is none the client gets 500, and the process is told. A rejection would
 * end the process, and any client can cause one by a body that breaks off, or that a handler cannot read.
 */
export function passOn(response: NodeResponse, error: unknown, next?: (error?: unknown) => void): void {
  if (next !== undefined) {
    next(error)
    return
  }
  const { code, stack } = (error ?? {}) as { readonly code?: string; readonly stack?: string }
  const hasLeft = response.destroyed && ['ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE'].includes(code ?? '')
  const warning = `A handler has failed: ${textOf(error)}`
  if (!hasLeft) warnAgain({ backend: 'http', namespace: '', code: 'HOLDFAST_HTTP', warning }, stack)
  if (!response.headersSent) sendNode(response, { status: 500 })
  else if (!response.writableEnded) response.destroy()
}

export function sendFastify(reply: FastifyReply, { status, headers = {}, body }: HttpAnswer): FastifyReply {
  for (const name of aboutAnotherBody) reply.removeHeader(name)
  reply.code(status)
  for (const [name, value] of Object.entries(headers)) reply.header(name, value)
  reply.send(body instanceof Uint8Array ? Buffer.from(body) : (body ?? undefined))
  return reply
}

export function webResponse({ status, headers = {}, body }: HttpAnswer): Response {
  return new Response((body ?? null) as ConstructorParameters<typeof Response>[0], {
    status,
    headers: { ...headers },
  })
}
