/**
 * Locks on etcd: what its consensus has granted survives the loss of members.
 *
 * ```ts
 * const locker = createLocker(await etcd({ hosts: ['http://10.0.0.1:2379', 'http://10.0.0.2:2379', 'http://10.0.0.3:2379'] }))
 * ```
 */
import type { Backend } from '../../../spi.ts'
import { type EtcdOptions, openEtcd } from './assemble.ts'

export type { EtcdClientOptions, EtcdTls } from '../client/index.ts'
export type { EtcdOptions } from './assemble.ts'

/** Makes first contact, and rejects if no member can be used. */
export function etcd(options: EtcdOptions): Promise<Backend<'fenced'>> {
  return openEtcd(options)
}
