/**
 * Handlers that a stale client cannot pass, for the servers that are in use.
 *
 *   the handler guards     it gets `fence`, and hands it to `guard.run` after it has read the body: check and effect are one step
 *   `checkBefore: true`    the fence is judged first, then the handler runs: two steps, so the handler gets it under another name
 *
 * A read with a fence raises the mark before its handler runs (T40, unchecked reads): what it reads, no older holder can change
 * any more.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { InvalidArgumentError } from '../../base/errors.ts'
import type { Fence } from '../../base/fence.ts'
import {
  type FastifyReply,
  type HeaderSource,
  headerOf,
  type NodeRequest,
  type NodeResponse,
  passOn,
  requestOf,
  sendFastify,
  sendNode,
  type WebInput,
  webResponse,
} from '../../base/http.ts'
import { checkFunction, checkKnownOptions, checkOneOf } from '../../base/options.ts'
import { problemOf } from './problem.ts'
import { FENCE_HEADER, type FenceTrust, fenceReader, TOKEN_HEADER, trustOptions } from './read-fence.ts'

/** The part of a `Guard` that a service needs before its handler runs. Every guard of Holdfast fits. */
export interface ServiceGuard {
  readonly name: string
  run<T>(proof: Fence, effect: () => T): Promise<T>
}

/** `Input` is what the server hands to a handler: a request, or the context of Hono. */
export interface FencedOptions<Input> extends FenceTrust {
  readonly guard: ServiceGuard
  /** The name that a request is about. Take it from the route: a client that chose it could write under the fence of another name. */
  readonly name: (input: Input) => string
}

/** How the handler is protected. */
export interface FencedMode<Reads, Before> {
  /** `open` lets GET, HEAD and OPTIONS pass without a fence; `fence` is null then. By default they need one, too. */
  readonly reads?: Reads
  /** For effects outside of the guard's store. A handler that is slow after its check is not stopped by a newer holder. */
  readonly checkBefore?: Before
}

/** The context of a handler: the fence, still to be handed to `guard.run`, or one that was judged before, which proves less. */
export type FencedContext<Reads, Before> = Before extends true
  ? { readonly checked: Reads extends 'open' ? Fence | null : Fence }
  : { readonly fence: Reads extends 'open' ? Fence | null : Fence }

type ReadsMode = 'fenced' | 'open'

/** The response beside a request: Express names its type in the request. */
type ResponseFor<Req> = Req extends { readonly res?: infer Res } ? NonNullable<Res> : ServerResponse

/**
 * For node:http, and for Express, where `name` says what it is given: `name: (req: Request<{ sku: string }>) => …`. An error that
 * is not a guard's goes to `next`; where there is none, the client gets 500, and the process a warning.
 */
export function fenced<
  Req extends NodeRequest = IncomingMessage,
  Reads extends ReadsMode = 'fenced',
  Before extends boolean = false,
>(
  options: FencedOptions<Req> & FencedMode<Reads, Before>,
  handler: (request: Req, response: ResponseFor<Req>, context: FencedContext<Reads, Before>) => unknown,
): (request: Req, response: ResponseFor<Req>, next?: (error?: unknown) => void) => Promise<void> {
  const admit = admission(options, handler)
  return async (request, response, next) => {
    const plain = response as NodeResponse
    try {
      const admitted = admit(request, request)
      const { context, isGuardedRead } = admitted instanceof Promise ? await admitted : admitted
      if (isGuardedRead) plain.setHeader('cache-control', 'no-store')
      await handler(request, response, context)
    } catch (error) {
      const problem = plain.headersSent ? null : problemOf(error)
      if (problem !== null) sendNode(plain, problem)
      else passOn(plain, error, next)
    }
  }
}

/** For servers in fetch style, and for Hono, where `name` says what it is given: `name: (c: Context) => …`. */
export function fencedWeb<
  Input extends WebInput = Request,
  Rest extends readonly unknown[] = [],
  Reads extends ReadsMode = 'fenced',
  Before extends boolean = false,
>(
  options: FencedOptions<Input> & FencedMode<Reads, Before>,
  handler: (
    input: Input,
    context: FencedContext<Reads, Before>,
    ...rest: Rest
  ) => Response | Promise<Response>,
): (input: Input, ...rest: Rest) => Promise<Response> {
  const admit = admission(options, handler)
  return async (input, ...rest) => {
    try {
      const admitted = admit(requestOf(input), input)
      const { context, isGuardedRead } = admitted instanceof Promise ? await admitted : admitted
      const response = await handler(input, context, ...rest)
      if (!isGuardedRead) return response
      const uncached = new Response(response.body, response)
      uncached.headers.set('cache-control', 'no-store')
      return uncached
    } catch (error) {
      const problem = problemOf(error)
      if (problem === null) throw error
      return webResponse(problem)
    }
  }
}

/** For Fastify. */
export function fencedFastify<
  Req extends NodeRequest,
  Reply extends FastifyReply,
  Reads extends ReadsMode = 'fenced',
  Before extends boolean = false,
>(
  options: FencedOptions<Req> & FencedMode<Reads, Before>,
  handler: (request: Req, reply: Reply, context: FencedContext<Reads, Before>) => unknown,
): (request: Req, reply: Reply) => Promise<unknown> {
  const admit = admission(options, handler)
  return async (request, reply) => {
    try {
      const admitted = admit(request, request)
      const { context, isGuardedRead } = admitted instanceof Promise ? await admitted : admitted
      if (isGuardedRead) reply.header('cache-control', 'no-store')
      return await handler(request, reply, context)
    } catch (error) {
      const problem = reply.sent ? null : problemOf(error)
      if (problem === null) throw error
      return sendFastify(reply, problem)
    }
  }
}

const readMethods = new Set(['GET', 'HEAD', 'OPTIONS'])

interface Asked {
  readonly method?: string | undefined
  readonly headers: HeaderSource
}

/** Judges a request before its handler runs; throws if it must not pass. */
function admission<Input, Reads extends ReadsMode, Before extends boolean>(
  options: FencedOptions<Input> & FencedMode<Reads, Before>,
  handler: unknown,
) {
  checkKnownOptions('options', options, [...trustOptions, 'guard', 'name', 'reads', 'checkBefore'])
  const { guard, name, reads = 'fenced', checkBefore = false } = options ?? {}
  if (typeof guard?.run !== 'function') throw new InvalidArgumentError('guard', 'must be a guard.')
  checkFunction('name', name)
  checkFunction('handler', handler)
  checkOneOf('reads', reads, ['fenced', 'open'])
  if (typeof checkBefore !== 'boolean')
    throw new InvalidArgumentError('checkBefore', 'must be true or false.')
  const read = fenceReader(options, guard.name)
  const contextOf = (fence: Fence | null) =>
    (checkBefore ? { checked: fence } : { fence }) as FencedContext<Reads, Before>
  // Without a check before the handler there is nothing to wait for, and a promise would cost as much as the rest.
  return (
    { method = '', headers }: Asked,
    input: Input,
  ): Admitted<Reads, Before> | Promise<Admitted<Reads, Before>> => {
    if (!isGuardedRequest({ method, headers }, reads))
      return { context: contextOf(null), isGuardedRead: false }
    const isGuardedRead = readMethods.has(method)
    const fence = read(headers, name(input))
    const admitted = { context: contextOf(fence), isGuardedRead }
    return isGuardedRead || checkBefore ? guard.run(fence, () => admitted) : admitted
  }
}

interface Admitted<Reads, Before> {
  readonly context: FencedContext<Reads, Before>
  readonly isGuardedRead: boolean
}

/** False for a read that comes without a fence where reads are open. */
export function isGuardedRequest({ method = '', headers }: Asked, reads: ReadsMode): boolean {
  if (reads !== 'open' || !readMethods.has(method)) return true
  return headerOf(headers, FENCE_HEADER) !== null || headerOf(headers, TOKEN_HEADER) !== null
}
