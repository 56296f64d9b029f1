/** Options to backend: checks them, and describes what the backend promises. */

import { type Clock, systemClock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkCallback, checkKnownOptions, checkNumber, checkOneOf } from '../../../base/options.ts'
import { checkIdentity } from '../../../kit/backend-kit.ts'
import { describeInfo } from '../../../kit/info.ts'
import type { Fencing } from '../../../spi.ts'
import { checkClientOptions, type RedisClient, RedisConnection, UNKNOWN_ADDRESS } from '../client/index.ts'
import { RedisBackend } from './backend.ts'
import { Connection } from './connection.ts'
import type { ServerDemands } from './diagnosis.ts'
import { Keys } from './keys.ts'

export interface RedisOptions {
  /**
   * A connected client: a `Redis` or `Cluster` of ioredis (5, 6), or what `createClient` or `createCluster` of node-redis
   * (5, 6) returned. It stays yours: close it after the locker.
   */
  readonly client: RedisClient
  /**
   * `clock-backed`: every grant has a token, the larger of the last one + 1 and the server's time in microseconds. Without
   * it leases are unfenced, by type.
   */
  readonly fencing?: 'clock-backed'
  readonly namespace?: string
  /** Default: `redis:<address>/<namespace>`, as the client was told the address. Name it yourself on a Cluster. */
  readonly issuer?: string
  /** The top bits of every token. After you have restored a backup, raise it, for example from 0 to 1. Default 0. */
  readonly epoch?: number
  /**
   * The lock key of a name, for teams that share key names with existing clients. Default:
   * `holdfast:<namespace>:{<name>}`. On a Cluster it must have a hash tag. Names cannot be listed then.
   */
  readonly key?: (name: string) => string
  /**
   * How often the first waiter looks while a foreign client holds. Up to as much again is added at random: the default 200 means
   * every 200 to 400 ms.
   */
  readonly pollMs?: number
  readonly clock?: Clock
  readonly random?: Random
}

const knownOptions = ['client', 'fencing', 'namespace', 'issuer', 'epoch', 'key', 'pollMs', 'clock', 'random']

/** `closeClient`: for a client that was made for this backend alone, and ends with it. */
export function openRedis(
  options: RedisOptions,
  { closeClient }: { readonly closeClient?: () => Promise<void> } = {},
): RedisBackend<Fencing> {
  checkClientOptions('redis options', options)
  checkKnownOptions('redis options', options, knownOptions)
  const { clock = systemClock, random = systemRandom } = options
  const { namespace, issuer, epoch } = checkIdentity(options)
  const isFenced =
    options.fencing !== undefined && checkOneOf('fencing', options.fencing, ['clock-backed']) !== undefined
  const pollMs = checkNumber('pollMs', options.pollMs ?? defaults.pollMs, { min: 1, max: 60_000 })
  const key = checkCallback('key', options.key)
  const client = new RedisConnection(options.client, { backend: 'redis', clock, random })
  const { isCluster, address } = client
  if (isFenced && issuer === undefined && address === UNKNOWN_ADDRESS)
    throw new InvalidArgumentError(
      'issuer',
      'must be given with fencing and a Cluster: its client does not tell where it was told to connect to, and tokens of two ' +
        'servers must not be taken for those of one.',
    )
  const keys = new Keys({ namespace, isCluster, ...(key && { key }) })
  const demands = { namespace, isFenced }
  const connection = new Connection({ client, keys, demands, pollMs, clock, random })
  const info = describeInfo<Fencing>({
    name: 'redis',
    scope: 'cluster',
    fencing: isFenced ? 'fenced' : 'unfenced',
    namespace,
    issuer: issuer ?? `redis:${address}/${namespace}`,
    epoch,
    pollMs,
    prolongation: 'leader-local',
    assumptions: assumptionsOf(demands, client),
    confirmed:
      'A keep-alive that the primary has applied, counted from before it was sent. It prolongs the claims that it lists, ' +
      'by name; what is not listed ends by itself within one TTL.',
  })
  return new RedisBackend(connection, info, closeClient)
}

function assumptionsOf({ isFenced }: ServerDemands, { isCluster }: RedisConnection): string[] {
  const assumptions = [
    'The primary’s wall clock is not set forward by more than the drift while a lease is held: Redis expires keys by it. ' +
      'Set back, it keeps the name of a dead holder for as much longer.',
    'The primary does not lose what it has acknowledged: a crash without persistence, or the promotion of a replica that ' +
      'has not caught up, can give a name away while its holder believes.',
    'Lock keys are not deleted or evicted: maxmemory-policy is noeviction.',
  ]
  if (isCluster)
    assumptions.push(
      'Every session is one key on one primary of the Cluster: while that one is silent, no lease of the session is renewed. ' +
        'Another that is silent costs the leases that it has, from half of the TTL on; and, if an acquire or release there ' +
        'stays unknown for one TTL, those of the session that it was asked through.',
    )
  if (isFenced) {
    assumptions.push(
      'Tokens come from the primary’s clock and the last token: they increase unless the clock goes back and the mark of the ' +
        'last token is lost as well, as when a replica is promoted whose clock is behind by more than the fail-over took.',
    )
    if (isCluster)
      assumptions.push(
        'In a Cluster the last token is remembered per name, for a day: tokens of names in different slots are ordered only up ' +
          'to the skew between the clocks of their nodes.',
      )
  }
  return assumptions
}
