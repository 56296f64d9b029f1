/** `postgres+advisory://host:port/database`. */
import { connectionParameters, postgresClientFromUrl } from '../../clients/postgres/index.ts'
import { asCount, asOneOf, asText, type LockerUrl, onOwnClient } from '../../kit/url.ts'
import type { Backend } from '../../spi.ts'
import { openPostgresAdvisory, USUAL_MAX_CONNECTIONS } from './assemble.ts'

interface Parameters {
  readonly schema: string
  readonly key: 'hashtext'
  readonly maxConnections: number
}

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const options = url.options<Parameters>(
    { schema: asText, key: asOneOf('hashtext'), maxConnections: asCount },
    connectionParameters,
  )
  const libraries = { pg: () => url.loadPeer('pg'), postgres: () => url.loadPeer('postgres') }
  // With postgres.js the connections for locks come out of the client's own, so it needs more of them.
  const connections = (options.maxConnections ?? USUAL_MAX_CONNECTIONS) + 1
  const { client, end } = await postgresClientFromUrl(url.location, url.parameters, libraries, connections)
  return onOwnClient(end, () => openPostgresAdvisory({ ...options, client }, { end }))
}
