/**
 * A reverse proxy that keeps stale clients from a service that cannot be changed.
 *
 * ```ts
 * const proxy = await fencingProxy({
 *   target: 'http://127.0.0.1:9000', // reachable through this proxy alone
 *   marks: '/var/lib/fences/stock.db',
 *   name: ({ url }) => nameOfRoute(url), // 'sku:42' for /stock/42; it throws for routes that it does not know
 *   keys: [key],
 *   port: 8080,
 * })
 * ```
 *
 * When a newer holder has been forwarded, nothing of an older one takes effect any more, but for an effect that comes later than
 * `limitMs` and `quarantineMs` after its request, or after its answer. `proxy/gate.ts` has the protocol.
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { DatabaseSync } from 'node:sqlite'
import type { Clock } from '../../../base/clock.ts'
import {
  InvalidArgumentError,
  isHoldfastError,
  quote,
  textOf,
  UnsupportedError,
} from '../../../base/errors.ts'
import { warn } from '../../../base/events.ts'
import { problem, sendNode } from '../../../base/http.ts'
import { ignore } from '../../../base/ignore.ts'
import { checkFunction, checkNumber, checkOneOf } from '../../../base/options.ts'
import { settledWithin } from '../../../base/within.ts'
import type { GuardOptions } from '../../../guards/guard.ts'
import { isGuardedRequest } from '../../../guards/http/fenced.ts'
import { problemOf } from '../../../guards/http/problem.ts'
import { type FenceTrust, fenceReader, trustOptions } from '../../../guards/http/read-fence.ts'
import { checkGuardOptions } from '../../../guards/settings.ts'
import { checkFolderOf, isBusy, openDatabase, ownStep, sharedFileSystemOf } from '../client/index.ts'
import { forward, isPlain } from './proxy/forward.ts'
import { Gate, Quarantined } from './proxy/gate.ts'

export type { FenceTrust } from '../../../guards/http/read-fence.ts'

declare module '../../../base/events.ts' {
  interface WarningCodes {
    HOLDFAST_PROXY: true
  }
}

export interface FencingProxyOptions extends FenceTrust, Omit<GuardOptions, 'name'> {
  /** The service: `http:` or `https:`, a host and a port. Nobody may reach it past the proxy. */
  readonly target: string
  /** A file for marks and requests in flight. One proxy has it at a time. */
  readonly marks: string
  /** The name that a request is about, from its method and URL. If it throws, or returns no text, the request is refused. */
  readonly name: (request: IncomingMessage) => string
  /** In events. Default `proxy`. */
  readonly guard?: string
  /** `open` lets GET, HEAD and OPTIONS pass without a fence. By default they need one, too. */
  readonly reads?: 'fenced' | 'open'
  /** How long the service may take for an answer, with the body of the request. Default 30,000. */
  readonly limitMs?: number
  /** How much longer a request may take effect that was not answered. Default 60,000. */
  readonly quarantineMs?: number
  /** Where it listens. Default: 127.0.0.1, and a port that is free. */
  readonly host?: string
  readonly port?: number
  readonly clock?: Clock
}

export interface FencingProxy extends AsyncDisposable {
  readonly url: string
  /** Accepts nothing more, waits for the answers to what was forwarded, at most twice `limitMs`, and gives the file back. */
  close(): Promise<void>
}

const own = ['target', 'marks', 'guard', 'reads', 'limitMs', 'quarantineMs', 'host', 'port', ...trustOptions]
const LONGEST_HEADERS_MS = 10_000

export async function fencingProxy(options: FencingProxyOptions): Promise<FencingProxy> {
  const {
    name,
    guard = 'proxy',
    reads = 'fenced',
    limitMs = 30_000,
    quarantineMs = 60_000,
    host = '127.0.0.1',
    port = 0,
  } = options ?? {}
  const settings = checkGuardOptions({ ...options, name: guard }, own)
  checkFunction('name', name)
  checkOneOf('reads', reads, ['fenced', 'open'])
  checkNumber('limitMs', limitMs, { min: 1, max: 3_600_000 })
  checkNumber('quarantineMs', quarantineMs, { min: 0, max: 86_400_000 })
  const target = checkTarget(options.target)
  const read = fenceReader(options, guard)
  const { clock } = settings
  const warnOf = (what: string, error: unknown) =>
    warn({ backend: guard, namespace: '', code: 'HOLDFAST_PROXY', warning: `${what}: ${textOf(error)}` })
  const { database, gate } = openMarks(
    options.marks,
    (marks) => new Gate(marks, settings, { limitMs, quarantineMs }),
  )
  const route = { target, limitMs, clock }
  /** Requests, until their answers have left. */
  const open = new Set<Promise<unknown>>()
  let closing: Promise<void> | undefined

  const serve = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
    if (closing !== undefined) return sendNode(outgoing, broken)
    if (!isPlain(incoming)) return sendNode(outgoing, ambiguous)
    if (!isGuardedRequest(incoming, reads)) return void (await forward(route, incoming, outgoing, null))
    const fence = read(incoming.headers, nameOf(name, incoming))
    const passage = await gate.enter(fence)
    // Nothing was forwarded yet, and nobody waits for an answer any more.
    if (outgoing.destroyed) return passage.end('over')
    try {
      passage.end(await forward(route, incoming, outgoing, fence.token))
    } catch (error) {
      // Not even the request could be made.
      passage.end('over')
      throw error
    }
  }
  const headersTimeout = Math.min(LONGEST_HEADERS_MS, limitMs)
  const server = createServer(
    {
      headersTimeout,
      connectionsCheckingInterval: headersTimeout,
      requestTimeout: 2 * limitMs + headersTimeout,
    },
    (incoming, outgoing) => {
      const served = serve(incoming, outgoing).catch((error: unknown) => {
        const refusal = refusalOf(error)
        if (refusal.status === 503 && !(error instanceof Quarantined))
          warnOf('A request was refused, because the proxy has failed', error)
        if (!outgoing.headersSent) sendNode(outgoing, refusal)
      })
      const left = Promise.all([served, new Promise((resolve) => outgoing.on('close', resolve))])
      open.add(left)
      void left.then(() => open.delete(left))
    },
  )
  try {
    server.listen(port, host)
    await once(server, 'listening')
  } catch (error) {
    database.close()
    throw error
  }
  server.on('error', (error) => warnOf('A connection could not be accepted', error))
  const close = async () => {
    const closed = new Promise((resolve) => server.close(resolve))
    // A request waits for an older one, and then for its own answer. An answer that is not fetched is not waited for.
    await settledWithin(clock, 2 * limitMs, Promise.all(open)).catch(ignore)
    server.closeAllConnections()
    await closed
    try {
      gate.flush()
    } finally {
      database.close()
    }
  }
  const { port: bound } = server.address() as AddressInfo
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}`,
    close: () => (closing ??= close()),
    [Symbol.asyncDispose]: () => (closing ??= close()),
  }
}

const ambiguous = problem(
  400,
  'AMBIGUOUS_TARGET',
  'The request can be read in more than one way: dot segments, empty segments, encoded slashes or letters, bad escapes, or a header ' +
    'for another URL or method.',
)
const broken = problem(
  503,
  'PROXY_FAILED',
  'The proxy could not judge the request. Nothing was sent to the service.',
  { retryAfterS: 1, outcome: 'not-applied' },
)

function refusalOf(error: unknown) {
  if (error instanceof Quarantined)
    return problem(503, 'QUARANTINED', 'An older request was not answered, and may still take effect.', {
      retryAfterS: Math.max(1, error.leftMs / 1_000),
      outcome: 'not-applied',
    })
  return problemOf(error) ?? (isHoldfastError(error, 'INVALID_ARGUMENT') ? ambiguous : broken)
}

function nameOf(name: FencingProxyOptions['name'], request: IncomingMessage): string {
  try {
    return name(request)
  } catch (cause) {
    throw new InvalidArgumentError('name', 'has failed for a request.', { cause })
  }
}

function checkTarget(target: unknown): URL {
  const url = typeof target === 'string' && URL.canParse(target) ? new URL(target) : null
  if (
    url === null ||
    !/^https?:$/.test(url.protocol) ||
    url.pathname !== '/' ||
    url.search !== '' ||
    url.username !== ''
  )
    throw new InvalidArgumentError(
      'target',
      'must be an http: or https: URL with a host and a port, and no path.',
    )
  return url
}

/** The lock on the file is kept until it is closed, or until the process is gone. */
function openMarks(
  path: unknown,
  gateOn: (marks: DatabaseSync) => Gate,
): { database: DatabaseSync; gate: Gate } {
  if (typeof path !== 'string' || path === '' || path === ':memory:')
    throw new InvalidArgumentError('marks', 'must be the path of a file.')
  const shared = sharedFileSystemOf(checkFolderOf(path))
  if (shared !== undefined)
    throw new UnsupportedError(
      `The proxy cannot use ${quote(path)}: it is on a shared file system (${shared}). Use a local disk.`,
    )
  const database = ownStep(path, () => openDatabase(path), 'proxy')
  try {
    database.exec(
      'PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN EXCLUSIVE; COMMIT',
    )
    return { database, gate: gateOn(database) }
  } catch (error) {
    database.close()
    if (isBusy(error))
      throw new UnsupportedError(
        `The proxy cannot use ${quote(path)}: another proxy has it. Two proxies for one service would not see each other's requests.`,
        { cause: error },
      )
    return ownStep(
      path,
      () => {
        throw error
      },
      'proxy',
    )
  }
}
