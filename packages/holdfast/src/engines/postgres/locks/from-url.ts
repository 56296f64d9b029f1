/** `postgres://host:port/database`, with the parameters of a connection string that the client libraries take. */

import { loadPeer } from '../../../base/load-peer.ts'
import { asFlag, asText, type LockerUrl, onOwnClient } from '../../../kit/url.ts'
import type { Backend } from '../../../spi.ts'
import { connectionParameters, postgresClientFromUrl } from '../client/index.ts'
import { openPostgres } from './assemble.ts'

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const options = url.options<{ schema: string; prepare: boolean }>(
    { schema: asText, prepare: asFlag },
    connectionParameters,
  )
  const libraries = { pg: () => loadPeer('pg'), postgres: () => loadPeer('postgres') }
  const { client, end, connectMs } = await postgresClientFromUrl(url.location, url.parameters, libraries)
  return onOwnClient(end, () => openPostgres({ ...options, client }, { end, connectMs }))
}
