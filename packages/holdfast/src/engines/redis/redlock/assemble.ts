/** Puts a backend together: checks its options and describes what it promises. */

import { type Clock, systemClock } from '../../../base/clock.ts'
import { defaultDriftMs, defaults } from '../../../base/defaults.ts'
import { InvalidArgumentError, isHoldfastError } from '../../../base/errors.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkNamespace } from '../../../base/names.ts'
import { checkCallback, checkInteger, checkKnownOptions, checkOneOf } from '../../../base/options.ts'
import { describeInfo } from '../../../kit/info.ts'
import type { BackendInfo } from '../../../spi.ts'
import { ClientState, isRedisClient, LockKeys, type RedisClient, RedisConnection } from '../client/index.ts'
import { RedlockBackend } from './backend.ts'
import { Ensemble } from './ensemble.ts'
import { RedlockNode } from './node.ts'
import { NodeTimeouts } from './node-timeouts.ts'

export interface RedlockOptions {
  /**
   * One client for each node: a server of its own, without a replica that takes over. Three or more, best an odd number:
   * five survive the loss of two. Each may be of ioredis (5 or 6) or of node-redis (5 or 6).
   */
  readonly clients: readonly RedisClient[]
  /**
   * How long a node that is connected may take to answer before it counts as lost for this call: longer than a round trip.
   * Default 50.
   */
  readonly nodeTimeoutMs?: number
  /** How long the first connection to a node may take, if a majority is not connected before. Default 2,000. */
  readonly connectTimeoutMs?: number
  /** How many nodes must agree. Default: the smallest majority, such as 3 of 5. With 4 of 5, nothing is granted while two nodes are down. */
  readonly quorum?: number
  /** One or two nodes are refused unless this is true: they survive the loss of none. */
  readonly allowFewNodes?: boolean
  /**
   * The longest TTL that any client of these nodes uses, the same for all of them. A node that was restarted does not
   * count for that long, because it may have forgotten locks. Default 60,000.
   */
  readonly maxTtlMs?: number
  /**
   * Persistence of the nodes over a crash. `none` (the default): it is not relied on, so a restarted node does not count for
   * `maxTtlMs`. `every-write`: all nodes have `appendonly yes` and `appendfsync always`, and count at once.
   */
  readonly persistence?: 'none' | 'every-write'
  /** For teams that share locks with other clients: the key for a name. Default `holdfast:<namespace>:{<name>}`. */
  readonly key?: (name: string) => string
  readonly namespace?: string
  readonly clock?: Clock
  readonly random?: Random
}

const knownOptions = [
  'clients',
  'nodeTimeoutMs',
  'connectTimeoutMs',
  'quorum',
  'allowFewNodes',
  'maxTtlMs',
  'persistence',
  'key',
  'namespace',
  'clock',
  'random',
]

const NODE_TIMEOUT_MS = 50
const CONNECT_TIMEOUT_MS = 2_000
const MAX_TTL_MS = 60_000
const LONGEST_NODE_TIMEOUT_MS = 10_000
const LONGEST_CONNECT_TIMEOUT_MS = 60_000
const LONGEST_TTL_MS = 86_400_000
const SHORTEST_TTL_MS = 100

export interface Surroundings {
  /** For clients that were made for this backend alone, and end with it. */
  readonly closeClients?: () => Promise<void>
}

export function openRedlock(options: RedlockOptions, { closeClients }: Surroundings = {}): RedlockBackend {
  if (options === undefined || Array.isArray(options) || isRedisClient(options))
    throw new InvalidArgumentError(
      'redlock options',
      'must be an object with clients: pass { clients: [ … ] }, with one client for each node.',
    )
  checkKnownOptions('redlock options', options, knownOptions)
  const { clock = systemClock, random = systemRandom } = options
  const nodeTimeoutMs = checkInteger('nodeTimeoutMs', options.nodeTimeoutMs ?? NODE_TIMEOUT_MS, {
    min: 1,
    max: LONGEST_NODE_TIMEOUT_MS,
  })
  const connectTimeoutMs = checkInteger(
    'connectTimeoutMs',
    options.connectTimeoutMs ?? Math.max(CONNECT_TIMEOUT_MS, nodeTimeoutMs),
    { min: nodeTimeoutMs, max: LONGEST_CONNECT_TIMEOUT_MS },
  )
  const shortestTtlMs = Math.max(SHORTEST_TTL_MS, 2 * nodeTimeoutMs)
  const maxTtlMs = checkInteger('maxTtlMs', options.maxTtlMs ?? Math.max(MAX_TTL_MS, shortestTtlMs), {
    min: shortestTtlMs,
    max: LONGEST_TTL_MS,
  })
  const clients = checkClients(options)
  const quorum = checkQuorum(options.quorum, clients.length)
  const persistence = checkOneOf('persistence', options.persistence ?? 'none', ['none', 'every-write'])
  const namespace = checkNamespace(options.namespace ?? defaults.namespace)
  const quarantineMs = persistence === 'none' ? Math.ceil(maxTtlMs + defaultDriftMs(maxTtlMs)) : 0
  const keys = new LockKeys(namespace, checkCallback('key', options.key))
  const timeouts = new NodeTimeouts(clock, nodeTimeoutMs)
  const timings = { connectTimeoutMs, nodeTimeoutMs, quarantineMs }
  const nodes = clients.map((client, index) => {
    const connection = connectionOf(client, index, { clock, random })
    const label = `node ${index + 1} of ${clients.length}`
    const readiness = ClientState.of(client)
    readiness.handleErrors()
    return new RedlockNode({ index, connection, readiness, label, clock, timeouts, ...timings })
  })
  const ensemble = new Ensemble({
    nodes,
    quorum,
    keys,
    clock,
    random,
    namespace,
    nodeTimeoutMs,
    maxTtlMs,
    persistence,
  })
  return new RedlockBackend(ensemble, infoOf(ensemble, shortestTtlMs), closeClients)
}

function checkClients({ clients, allowFewNodes = false }: RedlockOptions): readonly RedisClient[] {
  if (!Array.isArray(clients) || clients.length === 0)
    throw new InvalidArgumentError('clients', 'must be a list of Redis clients, one for each node.')
  if (typeof allowFewNodes !== 'boolean')
    throw new InvalidArgumentError('allowFewNodes', 'must be true or false.')
  if (clients.length < 3 && !allowFewNodes)
    throw new InvalidArgumentError(
      'clients',
      `must be at least 3, not ${clients.length}: with fewer nodes the loss of one stops everything. Use holdfast/redis ` +
        'for a single server, or set allowFewNodes: true.',
    )
  if (new Set(clients).size < clients.length)
    throw new InvalidArgumentError('clients', 'must not have the same client twice: it would vote twice.')
  return clients
}

function connectionOf(
  client: RedisClient,
  index: number,
  sources: { readonly clock: Clock; readonly random: Random },
): RedisConnection {
  const argument = `clients[${index}]`
  let connection: RedisConnection
  try {
    connection = new RedisConnection(client, { backend: 'redlock', ...sources })
  } catch (error) {
    if (!isHoldfastError(error, 'INVALID_ARGUMENT')) throw error
    throw new InvalidArgumentError(argument, error.message.replace(/^client /, ''), { cause: error })
  }
  if (connection.isCluster)
    throw new InvalidArgumentError(
      argument,
      'must not be a Redis Cluster: every node of Redlock is one server of its own.',
    )
  return connection
}

function checkQuorum(quorum: unknown, nodes: number): number {
  const majority = Math.floor(nodes / 2) + 1
  const checked = checkInteger('quorum', quorum ?? majority, { min: 1 })
  if (checked < majority || checked > nodes)
    throw new InvalidArgumentError(
      'quorum',
      `must be from ${majority} to ${nodes} of ${nodes} nodes, not ${checked}: two groups that are no majority can hold at once.`,
    )
  return checked
}

function infoOf({ options }: Ensemble, shortestTtlMs: number): BackendInfo<'unfenced'> {
  const { namespace, nodeTimeoutMs, quorum, persistence, maxTtlMs } = options
  const nodes = options.nodes.length
  return describeInfo({
    name: 'redlock',
    scope: 'cluster',
    fencing: 'unfenced',
    namespace,
    // There are no tokens, so these are never compared.
    issuer: `redlock/${namespace}`,
    epoch: 0,
    modes: ['exclusive'],
    waiting: 'poll',
    data: false,
    ttlMs: { min: shortestTtlMs, max: maxTtlMs, step: 1 },
    expirySlackMs: () => nodeTimeoutMs,
    prolongation: 'committed',
    assumptions: [
      `All who must exclude each other ask the same ${nodes} servers, each with a memory of its own and without a replica ` +
        `that takes over, and need ${quorum} of them.`,
      "On every server whose vote counts a key expires by a wall clock that is not stepped, and that runs as fast as the client's " +
        'to within the drift. One clock that is stepped forward is enough: if two majorities have that server in common, two ' +
        'clients hold at once and both believe it. The first learns it at a keep-alive in which so many servers say that they do ' +
        'not have its lock that no majority is left; otherwise it believes until its time is up. A clock that is set back keeps the ' +
        'vote for a dead holder for as much longer.',
      'A holder stops its work when its signal aborts. A process that is paused, or a write that is in flight, does not: nothing in ' +
        'Redlock stops a write that comes late. What must not be written twice needs a check in the resource itself.',
      persistence === 'none'
        ? `No client uses a TTL above ${maxTtlMs} ms, and all clients are told the same maxTtlMs: so long a restarted server is not ` +
          'counted. Its uptime is true.'
        : 'Every server has each write on its disk before it answers (appendonly yes, appendfsync always), and comes back with it.',
      'No keys are deleted, no server is flushed, and none may evict keys (maxmemory-policy noeviction).',
    ],
    confirmed: `A keep-alive that ${quorum} of ${nodes} servers have applied, counted from before it was sent to the first of them.`,
  })
}
