/**
 * The header `Idempotency-Key`: a request that comes again gets the answer of the first one, and its work is done once.
 *
 * ```ts
 * app.post('/payments', idempotencyKey({ idempotent, scope: (req) => `payments/${customerOf(req)}` }, async (req, { body }) => {
 *   return { status: 201, body: await pay(body) }
 * }))
 * ```
 *
 * The handler returns its answer, and nothing is sent before it is stored. Answers of 5xx are not stored: the next request does the
 * work again, and its handler is told `isTakeover`.
 */
import { createHash } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { limits } from '../base/defaults.ts'
import { InvalidArgumentError, isHoldfastError } from '../base/errors.ts'
import type { Fence } from '../base/fence.ts'
import {
  type FastifyReply,
  type HeaderSource,
  type HttpAnswer,
  headerOf,
  type NodeRequest,
  type NodeResponse,
  type Problem,
  passOn,
  problem,
  requestOf,
  sendFastify,
  sendNode,
  type WebInput,
  webResponse,
} from '../base/http.ts'
import { checkCallback, checkFunction, checkInteger, checkKnownOptions } from '../base/options.ts'
import { checkAnswer, fromStored, keyIn, type StoredAnswer, toStored } from './http/stored-answer.ts'
import { checkTimes, type Idempotent, type IdempotentContext, type IdempotentOptions } from './idempotent.ts'

export type {
  FastifyReply,
  HeaderSource,
  HttpAnswer,
  NodeRequest,
  NodeResponse,
  WebInput,
} from '../base/http.ts'
export { type EtagPair, type EtagPairOptions, type EtagRow, etagPair } from './http/etag-pair.ts'

/** `Input` is what the server hands to a handler: a request, or the context of Hono. */
export interface IdempotencyKeyOptions<Input, Tx = unknown>
  extends Pick<IdempotentOptions, 'ttlMs' | 'keepMs' | 'waitMs'> {
  readonly idempotent: Idempotent<Tx>
  /** The owner of the keys. It must contain who is asking, or one customer is shown the answer of another. At most 100 bytes. */
  readonly scope: (input: Input) => string
  /** The request that the key stands for; another one with the key is refused. Default: method, path and body. */
  readonly payload?: (input: Input) => unknown
  /** Default true. With false, a request without a key is served each time that it comes. */
  readonly required?: boolean
  /** Headers that later requests get again. Default: `content-type`, `location`, `etag`. */
  readonly storedHeaders?: readonly string[]
  /** The longest body that this middleware reads. Default 1,048,576, which is 1 MiB. Fastify and body parsers have limits of their own. */
  readonly bodyBytes?: number
}

/** The context of a handler, beside the request. */
export interface KeyedContext<Tx, Answer> extends Omit<IdempotentContext<Tx>, 'store' | 'fence'> {
  /** Null without a key. */
  readonly key: string | null
  /** A proof for guards; null without a key. */
  readonly fence: Fence | null
  /** The body, if this middleware has read it: bytes. Otherwise what the server has made of it. */
  readonly body: unknown
  /** Stores the answer in a transaction of yours, so that the work in it and its answer are one step. Return the same answer. */
  store(tx: Tx, answer: Answer): Promise<void>
}

/**
 * For node:http, and for Express, where `scope` says what it is given: `scope: (req: Request) => …`. An error goes to `next`; where
 * there is none, the client gets 500, and the process a warning.
 */
export function idempotencyKey<Tx, Req extends NodeRequest = IncomingMessage>(
  options: IdempotencyKeyOptions<Req, Tx>,
  handler: (request: Req, context: KeyedContext<Tx, HttpAnswer>) => HttpAnswer | Promise<HttpAnswer>,
): (
  request: Req,
  response: Pick<ServerResponse, keyof NodeResponse>,
  next?: (error?: unknown) => void,
) => Promise<void> {
  const answerOf = answering(options, handler, async (answer) => checkAnswer(answer))
  return async (request, response, next) => {
    try {
      const { originalUrl = request.url } = request as { readonly originalUrl?: string }
      const body = () => bodyOf(request as unknown as BodySource, options.bodyBytes)
      sendNode(
        response as NodeResponse,
        await answerOf(request, { ...partsOf(request), path: originalUrl, body }),
      )
    } catch (error) {
      passOn(response as NodeResponse, error, next)
    }
  }
}

/** For servers in fetch style, and for Hono, where `scope` says what it is given: `scope: (c: Context) => …`. */
export function idempotencyKeyWeb<Tx, Input extends WebInput = Request>(
  options: IdempotencyKeyOptions<Input, Tx>,
  handler: (input: Input, context: KeyedContext<Tx, Response>) => Response | Promise<Response>,
): (input: Input) => Promise<Response> {
  const answerOf = answering(options, handler, async (response) => {
    const body = new Uint8Array(await response.clone().arrayBuffer())
    return checkAnswer({ status: response.status, headers: Object.fromEntries(response.headers), body })
  })
  return async (input) => {
    const request = requestOf(input)
    const { pathname, search } = new URL(request.url)
    const body = () => {
      if (request.bodyUsed) throw bodyIsGone()
      // A copy of a stream is not cancelled before its original is, so one that is too long is left as it is.
      return bytesOf(request.clone().body?.values({ preventCancel: true }) ?? [], options.bodyBytes)
    }
    const answer = await answerOf(input, { ...partsOf(request), path: pathname + search, body })
    return answer instanceof Response ? answer : webResponse(answer)
  }
}

/** For Fastify. */
export function idempotencyKeyFastify<Tx, Req extends NodeRequest & { readonly body?: unknown }>(
  options: IdempotencyKeyOptions<Req, Tx>,
  handler: (request: Req, context: KeyedContext<Tx, HttpAnswer>) => HttpAnswer | Promise<HttpAnswer>,
): (request: Req, reply: FastifyReply) => Promise<FastifyReply> {
  const answerOf = answering(options, handler, async (answer) => checkAnswer(answer))
  return async (request, reply) => {
    const body = async () => request.body ?? null
    return sendFastify(reply, await answerOf(request, { ...partsOf(request), path: request.url, body }))
  }
}

interface Parts {
  readonly method: string | undefined
  readonly path: string | undefined
  readonly headers: HeaderSource
  readonly body: () => Promise<unknown>
}

const partsOf = ({
  method,
  headers,
}: {
  readonly method?: string | undefined
  readonly headers: HeaderSource
}) => ({
  method,
  headers,
})

/** A handler has answered 5xx: the claim is given back, and the answer is sent all the same. */
class NotStored extends Error {}

/** An error of the handler's own, which may have the code of one of `idempotent`. */
class HandlerError extends Error {}

const known = [
  'idempotent',
  'scope',
  'payload',
  'required',
  'storedHeaders',
  'bodyBytes',
  'ttlMs',
  'keepMs',
  'waitMs',
]

/** The work of all adapters. `plain` turns what a handler of this server returns into an answer that can be stored. */
function answering<Input, Tx, Answer>(
  options: IdempotencyKeyOptions<Input, Tx>,
  handler: (input: Input, context: KeyedContext<Tx, Answer>) => Answer | Promise<Answer>,
  plain: (answer: Answer) => Promise<HttpAnswer>,
) {
  checkKnownOptions('options', options, known)
  const {
    idempotent,
    scope,
    payload,
    required = true,
    storedHeaders = ['content-type', 'location', 'etag'],
  } = options
  checkFunction('idempotent', idempotent)
  checkFunction('scope', scope)
  checkFunction('handler', handler)
  checkCallback('payload', payload)
  checkInteger('bodyBytes', options.bodyBytes ?? 1, { min: 1 })
  if (typeof required !== 'boolean') throw new InvalidArgumentError('required', 'must be true or false.')
  if (!Array.isArray(storedHeaders) || !storedHeaders.every((name) => typeof name === 'string'))
    throw new InvalidArgumentError('storedHeaders', 'must be a list of names.')
  const kept = new Set(storedHeaders.map((name) => name.toLowerCase()))
  const terms = checkTimes({ ...options, waitMs: options.waitMs ?? 0 })

  return async (
    input: Input,
    { method, path, headers, body: readBody }: Parts,
  ): Promise<Answer | HttpAnswer> => {
    const header = headerOf(headers, 'idempotency-key')
    if (header === null && required)
      return problem(400, 'KEY_MISSING', 'This request needs the header Idempotency-Key.')
    const key = header === null ? null : keyIn(header)
    if (key === undefined)
      return problem(400, 'KEY_MALFORMED', 'The header Idempotency-Key must be a quoted string.')
    const body = await readBody()
    if (body instanceof TooLong)
      return problem(413, 'BODY_TOO_LARGE', 'The body of the request is too large.')
    if (key === null)
      return handler(input, {
        key,
        body,
        fence: null,
        signal: new AbortController().signal,
        isTakeover: false,
        store: async () => {},
      })
    let own: Answer | undefined
    let unusable: HandlerError | undefined
    try {
      const request = {
        scope: scope(input),
        key,
        payload: payload === undefined ? [method, path, digestOf(body)] : payload(input),
      }
      const work = async ({
        fence,
        isTakeover,
        store,
        ...claim
      }: IdempotentContext<Tx>): Promise<StoredAnswer | null> => {
        let isStored = false
        let overtaken: unknown
        const context: KeyedContext<Tx, Answer> = {
          key,
          body,
          fence,
          isTakeover,
          get signal() {
            return claim.signal
          },
          store: async (tx, answer) => {
            const { status, ...rest } = await plain(answer)
            if (status >= 500)
              throw new InvalidArgumentError('answer', 'of 5xx is not stored: roll back, and return it.')
            isStored = true
            own = answer
            await store(tx, toStored({ status, ...rest }, kept)).catch((error: unknown) => {
              overtaken = error
              throw error
            })
          },
        }
        const answer = await (async () => handler(input, context))().catch((cause: unknown) => {
          throw cause === overtaken ? cause : new HandlerError('', { cause })
        })
        if (isStored) return null
        own = answer
        try {
          const stored = await plain(answer)
          if (stored.status >= 500) throw new NotStored()
          return toStored(stored, kept)
        } catch (cause) {
          // 5xx says that the work has failed. After any other answer it is done, and must not be done again.
          if (Number((answer as { readonly status?: unknown } | null)?.status) >= 500) throw cause
          unusable = new HandlerError('', { cause })
          return { lost: 'none' }
        }
      }
      const stored = (await idempotent(request, work, terms)) as StoredAnswer
      if (unusable !== undefined) throw unusable
      return own ?? fromStored(stored)
    } catch (error) {
      if (error instanceof NotStored && own !== undefined) return own
      if (error instanceof HandlerError) throw error.cause
      const refusal = refusalOf(error)
      if (refusal === null) throw error
      return refusal
    }
  }
}

const RETRY = { retryAfterS: 1 }

/** The answer to an error of `idempotent`; null for others. */
function refusalOf(error: unknown): Problem | null {
  if (isHoldfastError(error, 'KEY_REUSED'))
    return problem(
      422,
      error.code,
      'This key was used for another request before. Give every request a key of its own.',
    )
  if (isHoldfastError(error, 'STORED_FAILURE'))
    return problem(409, error.code, 'The work for this key has failed before, and is not done again.')
  const isTaken = isHoldfastError(error, 'ACQUIRE_TIMEOUT') && !error.isBlocked
  if (isTaken || isHoldfastError(error, 'LEASE_LOST'))
    return problem(
      409,
      'IN_PROGRESS',
      'Another request with this key is in progress. Ask again with the same key.',
      RETRY,
    )
  if (isHoldfastError(error, 'NOT_COMMITTED'))
    return problem(
      503,
      error.code,
      'The transaction with the answer was not committed. Ask again with the same key.',
      RETRY,
    )
  const codes = ['ACQUIRE_TIMEOUT', 'BACKEND_UNAVAILABLE', 'CONFLICT', 'CLOSED']
  if (!isHoldfastError(error) || !codes.includes(error.code)) return null
  return problem(503, error.code, 'The store of keys did not answer. Ask again with the same key.', RETRY)
}

/** Bytes are compared by digest, whatever type they have. */
function digestOf(body: unknown): unknown {
  const isRaw = typeof body === 'string' || body instanceof Uint8Array
  return isRaw ? createHash('sha256').update(body).digest('base64url') : body
}

class TooLong {}

interface BodySource {
  /** Of node: whether somebody has begun to read it. */
  readonly readableDidRead?: boolean
  iterator(options: { readonly destroyOnReturn: boolean }): AsyncIterable<Uint8Array>
  readonly body?: unknown
}

/** The raw body, or what a body parser has left. */
async function bodyOf(request: BodySource, bodyBytes: number | undefined): Promise<unknown> {
  // The connection must live on for the answer, so the stream is not destroyed when the body is too long.
  if (request.readableDidRead !== true)
    return bytesOf(request.iterator({ destroyOnReturn: false }), bodyBytes)
  if (request.body === undefined) throw bodyIsGone()
  return request.body
}

async function bytesOf(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  bodyBytes = limits.storedBytes as number,
): Promise<Uint8Array | TooLong> {
  const read: Uint8Array[] = []
  let length = 0
  for await (const chunk of chunks) {
    length += chunk.length
    if (length > bodyBytes) return new TooLong()
    read.push(chunk)
  }
  return Buffer.concat(read)
}

function bodyIsGone(): InvalidArgumentError {
  return new InvalidArgumentError(
    'payload',
    'must be given: the body was read before this middleware, and not kept.',
  )
}
