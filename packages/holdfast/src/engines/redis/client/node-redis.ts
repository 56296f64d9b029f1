/** node-redis 5 and 6: what `createClient` and `createCluster` return. */
import { InvalidArgumentError, UnsupportedError } from '../../../base/errors.ts'
import type { NodeRedisClient } from './client.ts'
import { slotOf } from './hash-slots.ts'
import { opened } from './opening.ts'
import {
  evaluation,
  type RawConnection,
  type RawNode,
  type RawRedis,
  type RawSubscriber,
  UNKNOWN_ADDRESS,
} from './raw.ts'

export interface NodeRedisSingle {
  readonly isOpen: boolean
  readonly isReady: boolean
  readonly options?: {
    readonly socket?: { readonly host?: string; readonly port?: number; readonly path?: string }
    readonly keyPrefix?: string
    readonly database?: number
  }
  sendCommand(args: readonly string[]): Promise<unknown>
  withTypeMapping(mapping: object): this
  duplicate(overrides: object): NodeRedisSingle
  connect(): Promise<unknown>
  /** Unrefs its connections, also those to come. */
  unref(): void
  destroy(): void
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>
  unsubscribe(channel: string): Promise<unknown>
  on(event: string, listener: (...args: never[]) => void): unknown
  once(event: string, listener: (...args: never[]) => void): unknown
}

type Eval = (script: string, options: { keys: string[]; arguments: string[] }) => Promise<unknown>

interface ClusterNode {
  readonly address: string
}

export interface NodeRedisCluster {
  readonly isOpen: boolean
  readonly masters: readonly ClusterNode[]
  readonly slots: readonly ({ readonly master: ClusterNode } | undefined)[]
  sendCommand(firstKey: string | undefined, isReadonly: boolean, args: readonly string[]): Promise<unknown>
  withTypeMapping(mapping: object): this
  nodeClient(node: ClusterNode): Promise<NodeRedisSingle> | NodeRedisSingle
  eval: Eval
}

export function adaptNodeRedis(client: NodeRedisClient): RawRedis {
  if ('masters' in client) return adaptCluster(client as unknown as NodeRedisCluster)
  if ('getMasterNode' in client)
    throw new InvalidArgumentError(
      'client',
      'must not be of createSentinel: it offers no connection of its own to the primary. Use ioredis with Sentinel.',
    )
  return adaptSingle(client as unknown as NodeRedisSingle)
}

function adaptSingle(client: NodeRedisSingle): RawRedis {
  const keyPrefix = String(client.options?.keyPrefix ?? '')
  // A mapping that the user has set for their own commands (say, strings as buffers) must not change our answers.
  const plain = client.withTypeMapping({})
  return {
    library: 'node-redis',
    writesOncePerTurn: true,
    isCluster: false,
    address: `${nodeOf(client).label}/${client.options?.database ?? 0}`,
    keyPrefix,
    get isUsable() {
      return client.isOpen
    },
    evaluate: (command, script, keys, args) =>
      plain.sendCommand(evaluation(command, script, keyPrefix, keys, args)),
    ping: () => plain.sendCommand(['PING']),
    primaries: async () => [nodeOf(client)],
    ownerOf: () => '',
    dedicated: async (_key, stop) => connected(copyOf(client), stop),
    subscriber: async (stop) => subscriberOn(copyOf(client), stop),
  }
}

function adaptCluster(cluster: NodeRedisCluster): RawRedis {
  const plain = cluster.withTypeMapping({})
  let turn = 0
  const nodeClient = async (node: ClusterNode | undefined): Promise<NodeRedisSingle> => {
    if (node === undefined) throw new Error('the Cluster has no primary that is known yet')
    return cluster.nodeClient(node)
  }
  return {
    library: 'node-redis',
    writesOncePerTurn: true,
    isCluster: true,
    address: UNKNOWN_ADDRESS,
    keyPrefix: '',
    get isUsable() {
      return cluster.isOpen
    },
    evaluate: refusingPrefix(plain, (command, script, keys, args) =>
      plain.sendCommand(keys[0] ?? '', false, evaluation(command, script, '', keys, args)),
    ),
    primaries: () =>
      Promise.all(cluster.masters.map(async (node) => nodeOf(await nodeClient(node), node.address))),
    ownerOf: (key) => cluster.slots[slotOf(key)]?.master.address ?? '',
    dedicated: async (key, stop) =>
      connected(copyOf(await nodeClient(cluster.slots[slotOf(key)]?.master ?? cluster.masters[0])), stop),
    // Any node of a Cluster passes all messages on; after the loss of one, the next is tried.
    subscriber: async (stop) =>
      subscriberOn(
        copyOf(await nodeClient(cluster.masters[turn++ % Math.max(1, cluster.masters.length)])),
        stop,
      ),
  }
}

/**
 * The library does not tell the key prefix of such a client. Keys without it would not be those of a client that does tell,
 * and two could hold one lock: so a prefix is looked for in the first call, and refused.
 */
function refusingPrefix(client: { eval: Eval }, evaluate: RawRedis['evaluate']): RawRedis['evaluate'] {
  let hasNone = false
  return (command, script, keys, args) => {
    if (hasNone) return evaluate(command, script, keys, args)
    const [key = ''] = keys
    return client.eval('return KEYS[1]', { keys: [key], arguments: [] }).then((used) => {
      if (String(used) !== key)
        throw new UnsupportedError(
          'redis: keyPrefix does not work with createCluster. Choose a namespace instead, or a key function.',
        )
      hasNone = true
      return evaluate(command, script, keys, args)
    })
  }
}

/** Ours ends when it is lost: its user opens another and knows that something was missed. */
function copyOf(client: NodeRedisSingle): NodeRedisSingle {
  const socket = { ...client.options?.socket, reconnectStrategy: false }
  const own = client.duplicate({
    socket,
    keyPrefix: undefined,
    disableOfflineQueue: false,
    commandOptions: {},
  })
  // Without a listener an error of the socket would end the process (T51, unheard errors); callers are told by 'end'.
  own.on('error', () => {})
  return own
}

function nodeOf(client: NodeRedisSingle, label?: string): RawNode {
  const { host = 'localhost', port = 6379, path } = client.options?.socket ?? {}
  return {
    label: label ?? path ?? `${host}:${port}`,
    send: (args) => client.withTypeMapping({}).sendCommand(args),
  }
}

async function connected(own: NodeRedisSingle, stop: AbortSignal): Promise<RawConnection> {
  await open(own, stop)
  return { ...nodeOf(own), isOpen: () => own.isReady, close: () => destroy(own) }
}

async function subscriberOn(own: NodeRedisSingle, stop: AbortSignal): Promise<RawSubscriber> {
  await open(own, stop)
  let isLost = false
  let onLost = () => {}
  const lose = () => {
    if (isLost) return
    isLost = true
    onLost()
  }
  for (const event of ['end', 'error', 'terminated', 'reconnecting']) own.on(event, lose)
  return {
    subscribe: async (channel, listener) =>
      void (await own.subscribe(channel, (message) => listener(message))),
    unsubscribe: async (channel) => void (await own.unsubscribe(channel)),
    onLost(lost) {
      if (isLost) lost()
      else onLost = lost
    },
    close: () => destroy(own),
  }
}

async function open(own: NodeRedisSingle, stop: AbortSignal): Promise<void> {
  // No process stays alive for the sake of ours, also in its handshake: a pending call has a timer that does that.
  own.unref()
  await opened(
    stop,
    () => own.connect(),
    () => destroy(own),
  )
}

function destroy(own: NodeRedisSingle): void {
  // The client throws when it has ended by itself, which is wanted here.
  if (own.isOpen) own.destroy()
}
