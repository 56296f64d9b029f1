/** `consul://:TOKEN@a:8500,b:8500,c:8500?dc=…`, or `consuls://` for TLS. Certificates are files. */
import { readFile } from 'node:fs/promises'
import { clusterFromUrl } from '../../../kit/cluster-url.ts'
import { asText, type LockerUrl } from '../../../kit/url.ts'
import type { Backend } from '../../../spi.ts'
import { openConsul } from './assemble.ts'

const terms = { scheme: 'consul', secureScheme: 'consuls', port: 8500, readFile }

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const own = { dc: asText, ns: asText, partition: asText, checks: asText }
  const { address, options } = await clusterFromUrl<Record<keyof typeof own, string>>(url, terms, own)
  const { hosts, path: _, username: __, password: token, tls } = address
  const { dc: datacenter, checks, ...others } = options
  const protocol = tls === undefined ? 'http' : 'https'
  return openConsul({
    ...others,
    hosts: hosts.map((host) => `${protocol}://${host}`),
    ...(token && { token }),
    ...(tls && { tls }),
    ...(datacenter !== undefined && { datacenter }),
    ...(checks !== undefined && { checks: checks.split(',') }),
  })
}
