/** `etcd://user:password@a:2379,b:2379,c:2379`, or `etcds://` for TLS. Certificates are files. */
import { readFile } from 'node:fs/promises'
import { clusterFromUrl } from '../../../kit/cluster-url.ts'
import type { LockerUrl } from '../../../kit/url.ts'
import type { Backend } from '../../../spi.ts'
import { openEtcd } from './assemble.ts'

const terms = { scheme: 'etcd', secureScheme: 'etcds', port: 2379, readFile }

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const { address, options } = await clusterFromUrl(url, terms, {})
  const { hosts, path: _, ...others } = address
  const protocol = others.tls === undefined ? 'http' : 'https'
  return openEtcd({ ...options, ...others, hosts: hosts.map((host) => `${protocol}://${host}`) })
}
