/** `postgres+advisory://host:port/database`. */

import { loadPeer } from '../../../base/load-peer.ts'
import { asOneOf, asText, type LockerUrl, onOwnClient } from '../../../kit/url.ts'
import type { Backend } from '../../../spi.ts'
import { connectionParameters, poolFromUrl } from '../client/index.ts'
import { openPostgresAdvisory } from './assemble.ts'

interface Parameters {
  readonly schema: string
  readonly key: 'hashtext'
}

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const options = url.options<Parameters>({ schema: asText, key: asOneOf('hashtext') }, connectionParameters)
  const { client, end, connectMs } = await poolFromUrl(url.location, url.parameters, () => loadPeer('pg'))
  return onOwnClient(end, () => openPostgresAdvisory({ ...options, client }, { end, connectMs }))
}
