/** `zookeeper://user:password@a:2181,b:2181,c:2181/chroot?acl=creator`, or `zookeepers://` for TLS. Certificates are files. */
import { readFile } from 'node:fs/promises'
import { clusterFromUrl } from '../../../kit/cluster-url.ts'
import { asOneOf, type LockerUrl } from '../../../kit/url.ts'
import type { Backend } from '../../../spi.ts'
import { openZooKeeper, type ZooKeeperOptions } from './assemble.ts'

const terms = { scheme: 'zookeeper', secureScheme: 'zookeepers', port: 2181, hasPath: true, readFile }

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const own = { acl: asOneOf('creator', 'open') }
  const { address, options } = await clusterFromUrl<Pick<ZooKeeperOptions, 'acl'>>(url, terms, own)
  const { path, ...others } = address
  return openZooKeeper({ ...options, ...others, ...(path.length > 1 && { chroot: path }) })
}
