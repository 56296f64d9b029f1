/** Puts a backend together: checks its options, makes first contact, and describes what it promises. */
import { type Clock, keepProcessAlive, systemClock } from '../../../base/clock.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkKnownOptions } from '../../../base/options.ts'
import { checkIdentity, type IdentityOptions } from '../../../kit/backend-kit.ts'
import { describeInfo } from '../../../kit/info.ts'
import type { BackendInfo, Call } from '../../../spi.ts'
import { ZooKeeperClient, type ZooKeeperClientOptions } from '../client/index.ts'
import { ZooKeeperBackend } from './backend.ts'
import { BACKEND, Connection, unavailable } from './connection.ts'

export interface ZooKeeperOptions extends ZooKeeperClientOptions, IdentityOptions {
  readonly clock?: Clock
  readonly random?: Random
}

const knownOptions = [
  'hosts',
  'chroot',
  'username',
  'password',
  'acl',
  'tls',
  'clock',
  'random',
  'namespace',
  'issuer',
  'epoch',
]

/** As `zookeeper`, for tests and measurements: with a view of what it does. */
export async function openZooKeeper(options: ZooKeeperOptions): Promise<ZooKeeperBackend> {
  checkKnownOptions('zookeeper options', options, knownOptions)
  const { clock = systemClock, random = systemRandom } = options
  const { namespace, issuer, epoch } = checkIdentity(options)
  const client = new ZooKeeperClient(BACKEND, options, clock, random)
  const connection = new Connection(client, namespace, clock, random)
  // The connections do not keep the process alive, and the caller waits.
  const alive = keepProcessAlive(clock)
  try {
    const { id, minMs, maxMs } = await connection.lifetime.inBackground((call) =>
      firstContact(connection, call),
    )
    const described = { namespace, epoch, issuer: issuer ?? `zookeeper:${id}/${namespace}` }
    return new ZooKeeperBackend(connection, infoOf(described, minMs, maxMs))
  } catch (error) {
    await connection.close()
    throw error
  } finally {
    alive.cancel()
  }
}

/** The nodes of the namespace are made, and may be written. The oldest of ours says which ensemble it is. */
async function firstContact(connection: Connection, call: Call) {
  const { client, keys } = connection
  const bounds = await client.negotiated(call)
  for (const path of [keys.sessions, keys.attempts, keys.names]) await client.makePath(path, call)
  const { session } = await connection.reading(call)
  const root = await session.ask({ op: 'exists', path: `${client.chroot}/holdfast` }, call)
  if (!root.ok) throw unavailable(`its node cannot be read (${root.code})`, 'not-applied')
  return { ...bounds, id: `${root.stat.czxid.toString(16)}-${root.stat.ctimeMs.toString(16)}` }
}

type Described = Pick<BackendInfo, 'namespace' | 'issuer' | 'epoch'>

function infoOf(described: Described, minMs: number, maxMs: number): BackendInfo<'fenced'> {
  return describeInfo({
    ...described,
    name: BACKEND,
    scope: 'cluster',
    fencing: 'fenced',
    lockDelay: 'none',
    holdAtLeast: 'waiter',
    ttlMs: { min: minMs, max: maxMs, step: 1 },
    // The leader expires sessions in steps of its tick, which is half of the shortest time-out unless somebody has changed that.
    expirySlackMs: () => Math.round(minMs / 2) + 1_000,
    prolongation: 'committed',
    assumptions: [
      'A majority of the members keeps what it has written: no member is brought back with an old or an empty disk.',
      "The monotonic clock of ZooKeeper's leader runs as fast as the clients' clocks. Steps of the wall clock do not matter to sessions.",
      'The wall clocks of the members agree, as far as a name that is kept closed (holdAtLeastMs) must not open early after a change of the leader.',
      'All members have the same bounds for session time-outs.',
      'Only Holdfast writes below the node of the namespace.',
      'After ZooKeeper was restored from a backup, the epoch is raised before it is used under the same issuer.',
      'After a change of the leader all sessions start anew, so the names of a dead holder may stay taken for one TTL more.',
    ],
    confirmed:
      'A re-attachment of the session, after which a write on the same connection was committed, counted from before the re-attachment was sent.',
  })
}
