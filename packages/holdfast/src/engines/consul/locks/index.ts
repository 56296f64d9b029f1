/**
 * Locks on Consul: sessions and keys of a cluster that you run already.
 *
 * ```ts
 * const locker = createLocker(await consul({ hosts: ['http://10.0.0.1:8500', 'http://10.0.0.2:8500', 'http://10.0.0.3:8500'] }))
 * ```
 */
import type { Backend } from '../../../spi.ts'
import { type ConsulOptions, openConsul } from './assemble.ts'

export type { ConsulClientOptions, ConsulTls } from '../client/index.ts'
export type { ConsulOptions } from './assemble.ts'

/** Makes first contact, and rejects if no member can be used. */
export function consul(options: ConsulOptions): Promise<Backend<'fenced'>> {
  return openConsul(options)
}
