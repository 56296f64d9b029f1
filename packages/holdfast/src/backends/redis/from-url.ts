/**
 * A client for a URL, made with whichever of the two libraries is installed. Only `open.ts` may load them, so it hands
 * over how.
 */
import { type RedisClient, redisFailure } from '../../clients/redis/index.ts'
import { BackendUnavailableError, InvalidArgumentError, UnsupportedError } from '../../core/errors.ts'

export interface Libraries {
  ioredis(): Promise<unknown>
  redis(): Promise<unknown>
}

export interface OpenedClient {
  readonly client: RedisClient
  close(): Promise<void>
}

/**
 * `redis://user:password@host:port/database`; several hosts, separated by commas, are nodes of one Cluster.
 * `mayBeDown`: the client is handed out at once, and connects when it can.
 */
export async function clientFromUrl(
  scheme: string,
  location: string,
  libraries: Libraries,
  { mayBeDown = false }: { readonly mayBeDown?: boolean } = {},
): Promise<OpenedClient> {
  const urls = urlsOf(scheme, location)
  const ioredis = (await ifInstalled(libraries.ioredis)) as IoRedis | null
  if (ioredis !== null) return withIoRedis(ioredis, urls, mayBeDown)
  const redis = (await ifInstalled(libraries.redis)) as NodeRedis | null
  if (redis !== null) return withNodeRedis(redis, urls, mayBeDown)
  throw new UnsupportedError(
    `${scheme}: needs a client library to connect with. Install one of them: npm install ioredis, or npm install redis.`,
  )
}

function urlsOf(scheme: string, location: string): string[] {
  const [, credentials = '', hosts, path = ''] = /^\/\/([^@/]*@)?([^@/]+)(\/\d*)?$/.exec(location) ?? []
  // Not shown: it may hold a password.
  if (hosts === undefined)
    throw new InvalidArgumentError(
      'url',
      `must be ${scheme}://host:port, with user:password@ in front and /database behind if needed.`,
    )
  const urls = hosts.split(',').map((host) => `${scheme}://${credentials}${host}${path}`)
  if (urls.length > 1 && path.length > 1)
    throw new InvalidArgumentError('url', 'must not name a database: a Cluster has only one.')
  return urls
}

interface IoRedis {
  Redis: new (url: string, options: object) => IoRedisInstance
  Cluster: new (urls: string[], options: object) => IoRedisInstance
}

interface IoRedisInstance {
  on(event: 'error', listener: () => void): unknown
  call(command: string, ...args: string[]): Promise<unknown>
  connect(): Promise<void>
  disconnect(): void
}

async function withIoRedis(
  { Redis, Cluster }: IoRedis,
  urls: string[],
  mayBeDown: boolean,
): Promise<OpenedClient> {
  const [first = ''] = urls
  const made =
    urls.length > 1 ? new Cluster(urls, { lazyConnect: true }) : new Redis(first, { lazyConnect: true })
  const opened = await connected(made, mayBeDown, async () => made.disconnect())
  // The library goes on in database 0 if there is none of that number, and says so to nobody.
  const [, database] = /\/(\d+)$/.exec(first) ?? []
  if (urls.length > 1 || mayBeDown || database === undefined) return opened
  try {
    await made.call('SELECT', database)
    return opened
  } catch (error) {
    made.disconnect()
    throw redisFailure('redis', `choosing database ${database}`, error)
  }
}

interface NodeRedis {
  createClient(options: { url: string; socket: object }): NodeRedisInstance
  createCluster(options: { rootNodes: { url: string }[]; defaults: { socket: object } }): NodeRedisInstance
}

interface NodeRedisInstance {
  readonly isOpen: boolean
  on(event: 'error', listener: () => void): unknown
  connect(): Promise<unknown>
  destroy(): void
}

async function withNodeRedis(library: NodeRedis, urls: string[], mayBeDown: boolean): Promise<OpenedClient> {
  // By itself the library would go on trying for ever, also the very first time.
  let hasConnected = mayBeDown
  const reconnectStrategy = (tries: number) => hasConnected && Math.min(50 * 2 ** Math.min(tries, 6), 2_000)
  const socket = { reconnectStrategy }
  const [url = ''] = urls
  const made =
    urls.length > 1
      ? library.createCluster({ rootNodes: urls.map((each) => ({ url: each })), defaults: { socket } })
      : library.createClient({ url, socket })
  const opened = await connected(made, mayBeDown, async () => {
    if (made.isOpen) made.destroy()
  })
  hasConnected = true
  return opened
}

async function connected(
  made: IoRedisInstance | NodeRedisInstance,
  mayBeDown: boolean,
  close: () => Promise<void>,
): Promise<OpenedClient> {
  // Without a listener an error of the socket would end the process (T51); calls are told by themselves.
  let lastError: unknown
  made.on('error', (...errors: unknown[]) => {
    lastError = errors[0]
  })
  try {
    const connecting: Promise<unknown> = made.connect()
    // Both libraries go on trying by themselves.
    if (mayBeDown) connecting.catch(() => {})
    else await connecting
  } catch (error) {
    await close()
    throw couldNotConnect(lastError ?? error)
  }
  return { client: made as unknown as RedisClient, close }
}

/** Nothing was asked for yet, so nothing can have taken effect. */
function couldNotConnect(error: unknown): BackendUnavailableError {
  const said = error instanceof Error ? error.message.replace(/\.$/, '') : String(error)
  const isNoCluster = /slots cache|cluster support disabled/i.test(said)
  return new BackendUnavailableError(
    'redis',
    `connecting: ${said}${isNoCluster ? '. Several hosts are the nodes of one Cluster; for independent servers write redlock://' : ''}`,
    'not-applied',
    { cause: error },
  )
}

async function ifInstalled(load: () => Promise<unknown>): Promise<unknown> {
  try {
    return await load()
  } catch (error) {
    if ((error as { code?: unknown } | null)?.code === 'ERR_MODULE_NOT_FOUND') return null
    throw error
  }
}
