/** Puts a backend together: checks its options, makes first contact, and describes what it promises. */
import { type Clock, keepProcessAlive, systemClock } from '../../../base/clock.ts'
import { InvalidArgumentError, isHoldfastError } from '../../../base/errors.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkKnownOptions } from '../../../base/options.ts'
import { checkIdentity, type IdentityOptions } from '../../../kit/backend-kit.ts'
import { describeInfo } from '../../../kit/info.ts'
import type { BackendInfo, Call } from '../../../spi.ts'
import * as consul from '../client/index.ts'
import { ConsulBackend } from './backend.ts'
import { BACKEND, Connection, unreadable } from './connection.ts'

export interface ConsulOptions extends consul.ConsulClientOptions, IdentityOptions {
  /**
   * Health checks of the node that end every session when they fail, as an operator's deletion would: before the TTL is over. By
   * default none, not even `serfHealth`.
   */
  readonly checks?: readonly string[]
  readonly clock?: Clock
  readonly random?: Random
}

const ownOptions = ['hosts', 'tls', 'token', 'datacenter', 'ns', 'partition', 'checks', 'clock', 'random']
const knownOptions = [...ownOptions, 'namespace', 'issuer', 'epoch']

/** As `consul`, for tests and measurements: with a view of what it does. */
export async function openConsul(options: ConsulOptions): Promise<ConsulBackend> {
  checkKnownOptions('consul options', options, knownOptions)
  const { clock = systemClock, random = systemRandom, checks = [] } = options
  if (!Array.isArray(checks) || !checks.every((check) => typeof check === 'string'))
    throw new InvalidArgumentError('checks', 'must be a list of ids of checks.')
  const { namespace, issuer, epoch } = checkIdentity(options)
  const connection = new Connection(
    new consul.ConsulClient(BACKEND, options, clock),
    namespace,
    clock,
    random,
  )
  // The connection does not keep the process alive, and the caller waits.
  const alive = keepProcessAlive(clock)
  try {
    const identity = await connection.lifetime.inBackground((call) => firstContact(connection, issuer, call))
    const described = { namespace, epoch, issuer: issuer ?? `consul:${identity}/${namespace}` }
    return new ConsulBackend(connection, infoOf(described, connection.minTtlMs), checks)
  } catch (error) {
    connection.close()
    throw error
  } finally {
    alive.cancel()
  }
}

/**
 * Learns the shortest TTL, whether our keys may be read and written, and who issues tokens: Consul has no id of its own. Tombstones whose
 * lock-delay is over are taken away.
 */
async function firstContact(connection: Connection, issuer: string | undefined, call: Call): Promise<string> {
  const { client, keys, random } = connection
  connection.minTtlMs = await shortestTtl(connection, call)
  const found = await consul.keysBelow(client, keys.names, false, call)
  const delayed = found.filter((key) => keys.parse(key).kind === 'delay').map((key) => keys.groupOf(key))
  await connection.readNames([...new Set(delayed)], call)
  if (issuer !== undefined) return ''
  const key = `${keys.root}id`
  await client.transact([consul.absent(key), consul.set(key, random.id())], call, { onAgain: () => {} })
  const [identity] = (await connection.read([key], call)).entries
  if (identity === undefined) throw unreadable(key)
  return identity.value
}

/** Asks for a shorter session than nearly all servers allow (`session_ttl_min`), and takes the limit from the refusal. */
async function shortestTtl(connection: Connection, call: Call): Promise<number> {
  try {
    const shortest = { ttlMs: 1_000, behavior: 'delete' } as const
    connection.end(await consul.createSession(connection.client, shortest, call))
    return shortest.ttlMs
  } catch (error) {
    if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') || !/Invalid Session TTL/.test(error.message))
      throw error
    const [, , hours = 0, minutes = 0, seconds = 10] =
      /\[((\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)?=/.exec(error.message) ?? []
    return Math.ceil(((Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds)) * 1_000)
  }
}

type Described = Pick<BackendInfo, 'namespace' | 'issuer' | 'epoch'>

function infoOf(described: Described, minTtlMs: number): BackendInfo<'fenced'> {
  return describeInfo({
    ...described,
    name: BACKEND,
    scope: 'cluster',
    fencing: 'fenced',
    lockDelay: 'session',
    ttlMs: { min: minTtlMs, max: 86_400_000, step: 1 },
    // Consul ends a session at twice its TTL, and counts anew after an election.
    expirySlackMs: (ttlMs) => ttlMs + 1_000,
    prolongation: 'committed',
    assumptions: [
      'A majority of the servers keeps what it has written: no server is brought back with an old or an empty disk.',
      "The clock of Consul's leader runs as fast as the clients' clocks. Steps of the wall clock do not matter to Consul.",
      'Consul ends a session no sooner than twice its TTL after its last renewal, or after the last election.',
      'A client reaches each host directly: no balancer spreads its requests over several servers.',
      'Only Holdfast writes below the prefix of the namespace.',
      'After Consul was restored from a snapshot, the epoch is raised before it is used under the same issuer.',
    ],
    confirmed:
      'A renewal of the session after which a linearizable read has found it, counted from before it was sent; an earlier one, at most one TTL before, is certain.',
  })
}
