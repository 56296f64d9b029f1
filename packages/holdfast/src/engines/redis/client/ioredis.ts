/** ioredis 5 and 6: `Redis` (one server, or through Sentinel) and `Cluster`. */
import type { IoRedisClient } from './client.ts'
import { slotOf } from './hash-slots.ts'
import { opened } from './opening.ts'
import {
  type RawConnection,
  type RawNode,
  type RawRedis,
  type RawSubscriber,
  UNKNOWN_ADDRESS,
} from './raw.ts'

/** Methods that we use beyond what tells the libraries apart. */
export interface IoRedis {
  readonly status: string
  /** The socket of a `Redis`, which is in its types and not in its documents; a `Cluster` has none. */
  readonly stream?: { unref?(): void; destroy?(): void }
  readonly options: {
    readonly keyPrefix?: string
    readonly host?: string
    readonly port?: number
    readonly path?: string
    readonly db?: number
    readonly name?: string
    readonly sentinels?: unknown
    readonly enableAutoPipelining?: boolean
    readonly autoResendUnfulfilledCommands?: boolean
  }
  call(command: string, ...args: string[]): Promise<unknown>
  evalsha(sha1: string, count: number, ...args: string[]): Promise<unknown>
  eval(source: string, count: number, ...args: string[]): Promise<unknown>
  subscribe(channel: string): Promise<unknown>
  unsubscribe(channel: string): Promise<unknown>
  connect(): Promise<void>
  disconnect(): void
  duplicate(override: object): IoRedis
  on(event: string, listener: (...args: never[]) => void): unknown
  once(event: string, listener: (...args: never[]) => void): unknown
}

interface IoRedisCluster extends Omit<IoRedis, 'duplicate'> {
  /** Per slot the keys (`host:port`) of its nodes, the primary first. */
  readonly slots: readonly (readonly string[] | undefined)[]
  nodes(role: 'master'): IoRedis[]
}

export function adaptIoRedis(client: IoRedisClient): RawRedis {
  const redis = client as unknown as IoRedis | IoRedisCluster
  const cluster = isCluster(redis) ? redis : null
  const single = isCluster(redis) ? null : redis
  const keyPrefix = redis.options.keyPrefix ?? ''

  const ownerOf = (key: string) => cluster?.slots[slotOf(keyPrefix + key)]?.[0]

  /** The connection of the client's own pool to copy for one of ours. */
  const template = async (key: string | null): Promise<IoRedis> => {
    if (single !== null) return single
    const nodes = await clusterNodes(redis as IoRedisCluster)
    const owner = key === null ? undefined : ownerOf(key)
    const found = nodes.find((node) => owner === labelOf(node)) ?? nodes[0]
    if (found === undefined) throw new Error('the Cluster has no primary that is known yet')
    return found
  }

  return {
    library: 'ioredis',
    writesOncePerTurn: redis.options.enableAutoPipelining === true,
    address: single === null ? UNKNOWN_ADDRESS : addressOf(single),
    isCluster: cluster !== null,
    keyPrefix,
    // The connections of a Cluster do not come back by themselves, and reject what they owe.
    forgetsUnanswered: single?.options.autoResendUnfulfilledCommands === false,
    ...(single !== null && { database: single.options.db ?? 0 }),
    get isUsable() {
      return redis.status !== 'end'
    },
    evaluate(command, script, keys, args) {
      return command === 'EVALSHA'
        ? redis.evalsha(script, keys.length, ...keys, ...args)
        : redis.eval(script, keys.length, ...keys, ...args)
    },
    ping: () => redis.call('PING'),
    async primaries() {
      const nodes = cluster === null ? [redis as IoRedis] : await clusterNodes(cluster)
      return nodes.map(nodeOf)
    },
    ownerOf: (key) => ownerOf(key) ?? '',
    dedicated: async (key, stop) => connected((await template(key)).duplicate(ownOptions), stop),
    subscriber: async (stop) => {
      const nodes = cluster === null ? [] : await clusterNodes(cluster)
      // Any node of a Cluster passes all messages on; not every process should ask the same one.
      const any = nodes[Math.trunc(nodes.length * spread(nodes.length))] ?? (await template(null))
      return subscriberOn(any.duplicate(ownOptions), stop)
    },
  }
}

let turn = 0
/** Goes round, so that after the loss of a node the next one is tried. */
function spread(count: number): number {
  turn = (turn + 1) % Math.max(1, count)
  return turn / Math.max(1, count)
}

/** Ours ends when it is lost: its user opens another and knows that something was missed. */
const ownOptions = {
  retryStrategy: null,
  lazyConnect: true,
  keyPrefix: '',
  enableOfflineQueue: true,
  autoResubscribe: false,
  maxRetriesPerRequest: null,
  // The user's may ask for a resend after an error, which a connection that ends cannot do.
  reconnectOnError: null,
}

function isCluster(redis: IoRedis | IoRedisCluster): redis is IoRedisCluster {
  return 'nodes' in redis && typeof redis.nodes === 'function'
}

/** The pool of a Cluster is empty until it has been reached. */
async function clusterNodes(cluster: IoRedisCluster): Promise<IoRedis[]> {
  if (cluster.nodes('master').length === 0 && cluster.status !== 'end') await cluster.call('PING')
  return cluster.nodes('master')
}

function addressOf(redis: IoRedis): string {
  const { name, sentinels, db = 0 } = redis.options
  return `${sentinels ? `sentinel:${name ?? 'mymaster'}` : labelOf(redis)}/${db}`
}

function labelOf({ options }: IoRedis): string {
  return options.path ?? `${options.host ?? '127.0.0.1'}:${options.port ?? 6379}`
}

function nodeOf(redis: IoRedis): RawNode {
  return {
    label: labelOf(redis),
    send: ([command = '', ...args]) => redis.call(command, ...args),
  }
}

async function connected(own: IoRedis, stop: AbortSignal): Promise<RawConnection> {
  await open(own, stop)
  return { ...nodeOf(own), isOpen: () => own.status === 'ready', close: () => own.disconnect() }
}

async function subscriberOn(own: IoRedis, stop: AbortSignal): Promise<RawSubscriber> {
  const listeners = new Map<string, (message: string) => void>()
  own.on('message', (channel: string, message: string) => listeners.get(channel)?.(message))
  await open(own, stop)
  return {
    async subscribe(channel, listener) {
      listeners.set(channel, listener)
      await own.subscribe(channel)
    },
    async unsubscribe(channel) {
      listeners.delete(channel)
      await own.unsubscribe(channel)
    },
    onLost(lost) {
      if (own.status === 'end') lost()
      else own.once('end', lost)
    },
    close: () => own.disconnect(),
  }
}

async function open(own: IoRedis, stop: AbortSignal): Promise<void> {
  // Without a listener an error of the socket would end the process (T51, unheard errors); callers are told by 'end'.
  own.on('error', () => {})
  // No process stays alive for the sake of ours, also in its handshake: a pending call has a timer that does that.
  own.once('connect', () => own.stream?.unref?.())
  await opened(
    stop,
    () => own.connect(),
    () => {
      own.disconnect()
      // The library would wait for the other side for a while, with a timer that keeps the process alive.
      own.stream?.destroy?.()
    },
  )
}
