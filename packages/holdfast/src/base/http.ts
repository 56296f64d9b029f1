/** HTTP as far as middleware needs it: headers of any server, and problem documents (RFC 9457). */
import type { CallOutcome } from './errors.ts'

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

/** A refusal, ready to be sent. */
export interface Problem {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
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
  const headers = { 'content-type': 'application/problem+json', 'cache-control': 'no-store' }
  return {
    status,
    headers: retryable ? { ...headers, 'retry-after': String(Math.ceil(retryAfterS)) } : headers,
    document: {
      type: 'about:blank',
      title: titles[status],
      status,
      detail,
      code,
      retryable,
      ...(outcome !== undefined && { outcome }),
    },
  }
}
