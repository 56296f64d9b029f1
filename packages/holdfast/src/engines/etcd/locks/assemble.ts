/** Puts a backend together: checks its options, makes first contact, and describes what it promises. */
import { type Clock, keepProcessAlive, systemClock } from '../../../base/clock.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkKnownOptions } from '../../../base/options.ts'
import { checkIdentity, type IdentityOptions } from '../../../kit/backend-kit.ts'
import { describeInfo } from '../../../kit/info.ts'
import type { Call } from '../../../spi.ts'
import { EtcdClient, type EtcdClientOptions, methods, revokeLease } from '../client/index.ts'
import { EtcdBackend } from './backend.ts'
import { BACKEND, Connection } from './connection.ts'
import { leaseOf } from './keys.ts'

export interface EtcdOptions extends EtcdClientOptions, IdentityOptions {
  readonly clock?: Clock
  readonly random?: Random
}

const knownOptions = [
  'hosts',
  'tls',
  'username',
  'password',
  'clock',
  'random',
  'namespace',
  'issuer',
  'epoch',
]

/** As `etcd`, for tests and measurements: with a view of what it does. */
export async function openEtcd(
  options: EtcdOptions,
  surroundings: { readonly client?: EtcdClient } = {},
): Promise<EtcdBackend> {
  checkKnownOptions('etcd options', options, knownOptions)
  const { clock = systemClock, random = systemRandom } = options
  const { namespace, issuer, epoch } = checkIdentity(options)
  const client = surroundings.client ?? new EtcdClient(BACKEND, options, clock)
  const connection = new Connection(client, namespace, clock, random)
  // The connection does not keep the process alive, and the caller waits.
  const alive = keepProcessAlive(clock)
  try {
    const { clusterId, minTtlMs } = await connection.lifetime.inBackground((call) =>
      firstContact(connection, leaseOf(namespace, random.id()), call),
    )
    const info = describeInfo({
      namespace,
      epoch,
      issuer: issuer ?? `etcd:${clusterId}/${namespace}`,
      name: BACKEND,
      scope: 'cluster',
      fencing: 'fenced',
      lockDelay: 'none',
      ttlMs: { min: minTtlMs, max: 86_400_000, step: 1_000 },
      // etcd looks for expired leases every 500 ms. A new leader lets all leases start anew, for an election time-out longer; the
      // shortest lease is one and a half of it.
      expirySlackMs: () => 1_000 + Math.round(minTtlMs / 1.5),
      prolongation: 'committed',
      assumptions: [
        'A majority of the members keeps what it has written: no member is brought back with an old or an empty disk.',
        "The clock of etcd's leader runs as fast as the clients' clocks. Steps of the wall clock do not matter to etcd.",
        'Only Holdfast writes below the prefix of the namespace.',
        'After etcd was restored from a snapshot, the epoch is raised before it is used under the same issuer.',
        'After a change of the leader all leases start anew, so the names of a dead holder may stay taken for one TTL more.',
      ],
      confirmed:
        'A keep-alive after whose answer a linearizable read was answered in the same term, counted from before the keep-alive was sent.',
    })
    return new EtcdBackend(connection, info, clusterId)
  } catch (error) {
    connection.close()
    throw error
  } finally {
    alive.cancel()
  }
}

/** Whether our keys may be read, which cluster it is, and its shortest lease, which follows from its election time-out. */
async function firstContact(
  { client, keys }: Connection,
  ID: number,
  call: Call,
): Promise<{ clusterId: string; minTtlMs: number }> {
  await client.ask(methods.range, { ...keys.all, count_only: true }, call)
  const { TTL, header } = await client.ask(methods.leaseGrant, { TTL: 1, ID }, call)
  await revokeLease(client, ID, call)
  return { clusterId: header?.cluster_id ?? '', minTtlMs: TTL * 1_000 }
}
