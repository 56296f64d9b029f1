/**
 * A client for a URL, made with whichever of the two libraries is installed. Only `open.ts` may load them, so it hands
 * over how.
 */
import { type Clock, systemClock } from '../../../base/clock.ts'
import { type HoldfastError, InvalidArgumentError, isHoldfastError } from '../../../base/errors.ts'
import { growingPauseMs } from '../../../base/pauses.ts'
import { settledWithin } from '../../../base/within.ts'
import { ifInstalled, noneInstalled } from '../../../kit/if-installed.ts'
import type { RedisClient } from './client.ts'
import { adviceFor, notConnected, reasonOf, redisFailure } from './failures.ts'
import type { IoRedis } from './ioredis.ts'
import type { NodeRedisCluster, NodeRedisSingle } from './node-redis.ts'

export interface RedisLibraries {
  ioredis(): Promise<unknown>
  redis(): Promise<unknown>
}

export interface OpenedRedisClient {
  readonly client: RedisClient
  close(): Promise<void>
}

export interface OpeningOptions {
  /** The client is handed out at once, and connects when it can. */
  readonly mayBeDown?: boolean
  readonly clock?: Clock
}

/** A server that has not answered a new connection by then counts as unreachable. Both libraries could wait without an end. */
const CONNECT_WITHIN_MS = 10_000
const RECONNECT_PAUSE = { firstMs: 50, longestMs: 2_000 }

/** `redis://user:password@host:port/database`; several hosts, separated by commas, are nodes of one Cluster. */
export async function redisClientFromUrl(
  scheme: string,
  location: string,
  libraries: RedisLibraries,
  { mayBeDown = false, clock = systemClock }: OpeningOptions = {},
): Promise<OpenedRedisClient> {
  const urls = urlsOf(scheme, location)
  const ioredis = (await ifInstalled(libraries.ioredis)) as IoRedisLibrary | null
  if (ioredis !== null) return connected(withIoRedis(ioredis, urls), mayBeDown, clock)
  const redis = (await ifInstalled(libraries.redis)) as NodeRedisLibrary | null
  if (redis !== null) return connected(withNodeRedis(redis, urls, mayBeDown), mayBeDown, clock)
  throw noneInstalled(scheme, ['ioredis', 'redis'])
}

/** The parts of `//user:password@a:6379,b:6379/0`; null if it is none. Credentials and database stay in the form of a URL. */
export function partsOfLocation(
  location: string,
): { readonly credentials: string; readonly hosts: readonly string[]; readonly database: string } | null {
  const [, credentials = '', hosts, database = ''] = /^\/\/([^@/]*@)?([^@/]+)(\/\d*)?$/.exec(location) ?? []
  return hosts === undefined ? null : { credentials, hosts: hosts.split(','), database }
}

function urlsOf(scheme: string, location: string): string[] {
  const parts = partsOfLocation(location)
  // The URL is not shown: it may hold a password.
  if (parts === null)
    throw new InvalidArgumentError(
      'url',
      `must be ${scheme}://host:port, with user:password@ in front and /database behind if needed.`,
    )
  const { credentials, hosts, database } = parts
  if (hosts.length > 1 && database.length > 1)
    throw new InvalidArgumentError('url', 'must not name a database: a Cluster has only one.')
  const urls = hosts.map((host) => `${scheme}://${credentials}${host}${database}`)
  for (const url of urls) checkReadable(scheme, url)
  return urls
}

/** Client libraries answer a URL that they cannot read with errors of their own. */
function checkReadable(scheme: string, url: string): void {
  if (!URL.canParse(url))
    throw new InvalidArgumentError('url', `must be ${scheme}://host:port, with a port from 1 to 65535.`)
  try {
    const { username, password } = new URL(url)
    decodeURIComponent(username + password)
  } catch {
    // The cause would show the password.
    throw new InvalidArgumentError(
      'url',
      'has a % in its user or password that does not start an escape; write it as %25.',
    )
  }
}

/** A client that was made and is not connected yet. */
interface Made {
  readonly client: { on(event: 'error', listener: (error: unknown) => void): unknown }
  connect(): Promise<void>
  close(): void
}

/** A `Redis` or a `Cluster`. */
type IoRedisOpened = Pick<IoRedis, 'stream' | 'on' | 'call' | 'connect' | 'disconnect'>

interface IoRedisLibrary {
  Redis: new (url: string, options: object) => IoRedisOpened
  Cluster: new (urls: string[], options: object) => IoRedisOpened
}

function withIoRedis({ Redis, Cluster }: IoRedisLibrary, urls: string[]): Made {
  const [first = ''] = urls
  const client =
    urls.length > 1 ? new Cluster(urls, { lazyConnect: true }) : new Redis(first, { lazyConnect: true })
  if (urls.length > 1) client.on('+node', unrefEveryConnection)
  else unrefEveryConnection(client)
  const [, database] = /\/(\d+)$/.exec(first) ?? []
  return {
    client,
    async connect() {
      await client.connect()
      // The library goes on in database 0 if there is none of that number, and does not say so.
      if (urls.length === 1 && database !== undefined)
        await client.call('SELECT', database).catch((error: unknown) => {
          throw redisFailure('redis', `choosing database ${database}`, error)
        })
    },
    close: () => client.disconnect(),
  }
}

/**
 * A forgotten `close` must not keep the process alive. What keeps it alive while a call is pending is the timer of that
 * call, so the connection itself never has to.
 */
function unrefEveryConnection(redis: IoRedisOpened): void {
  redis.on('connect', () => redis.stream?.unref?.())
}

type Cluster = Pick<NodeRedisSingle, 'isOpen' | 'on' | 'connect' | 'destroy'> &
  Pick<NodeRedisCluster, 'masters' | 'nodeClient'>

interface NodeRedisLibrary {
  createClient(options: { url: string; socket: object }): NodeRedisSingle
  createCluster(options: { rootNodes: { url: string }[]; defaults: { socket: object } }): Cluster
}

function withNodeRedis(library: NodeRedisLibrary, urls: string[], mayBeDown: boolean): Made {
  // By itself the library would go on trying for ever, also the very first time.
  let hasConnected = mayBeDown
  const reconnectStrategy = (tries: number) => hasConnected && growingPauseMs(tries, RECONNECT_PAUSE)
  const socket = { reconnectStrategy }
  const [url = ''] = urls
  const client =
    urls.length > 1
      ? library.createCluster({ rootNodes: urls.map((each) => ({ url: each })), defaults: { socket } })
      : library.createClient({ url, socket })
  if ('masters' in client) client.on('node-ready', () => unrefEveryPrimary(client))
  else client.unref()
  return {
    client,
    async connect() {
      await client.connect()
      hasConnected = true
    },
    close() {
      if (client.isOpen) client.destroy()
    },
  }
}

function unrefEveryPrimary(cluster: Cluster): void {
  for (const node of cluster.masters)
    Promise.resolve(cluster.nodeClient(node)).then(
      (client) => client.unref(),
      () => {},
    )
}

async function connected(made: Made, mayBeDown: boolean, clock: Clock): Promise<OpenedRedisClient> {
  const opened = { client: made.client as unknown as RedisClient, close: async () => made.close() }
  // Without a listener an error of the socket would end the process (T51, unheard errors); calls are told by themselves.
  let lastError: unknown
  made.client.on('error', (error) => {
    lastError = error
  })
  const connecting = made.connect()
  // A client that goes on trying tells it by events; the first failure is told below.
  connecting.catch(() => {})
  if (mayBeDown) return opened
  const reason = () => new Error(`the server has not answered within ${CONNECT_WITHIN_MS} ms`)
  try {
    await settledWithin(clock, CONNECT_WITHIN_MS, connecting, { reason, keepsProcessAlive: true })
    return opened
  } catch (error) {
    made.close()
    throw isHoldfastError(error) ? error : couldNotConnect(lastError ?? error)
  }
}

/** Nothing was asked for yet, so nothing can have taken effect. */
function couldNotConnect(error: unknown): HoldfastError {
  const isNoCluster = /slots cache|cluster support disabled/i.test(reasonOf(error))
  return notConnected(
    'redis',
    'the server could not be connected to',
    error,
    isNoCluster
      ? 'Several hosts are the nodes of one Cluster; for independent servers write redlock://'
      : adviceFor(error, 'in the URL'),
  )
}
