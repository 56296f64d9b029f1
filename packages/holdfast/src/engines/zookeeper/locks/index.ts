/**
 * Locks on ZooKeeper: what its leader has committed survives the loss of members. Nothing has to be installed.
 *
 * ```ts
 * const locker = createLocker(await zookeeper({ hosts: ['10.0.0.1:2181', '10.0.0.2:2181', '10.0.0.3:2181'], acl: 'open' }))
 * ```
 */
import type { Backend } from '../../../spi.ts'
import { openZooKeeper, type ZooKeeperOptions } from './assemble.ts'

export type { ZooKeeperClientOptions, ZooKeeperTls } from '../client/index.ts'
export type { ZooKeeperOptions } from './assemble.ts'

/** Makes first contact, and rejects if no member can be used. */
export function zookeeper(options: ZooKeeperOptions): Promise<Backend<'fenced'>> {
  return openZooKeeper(options)
}
