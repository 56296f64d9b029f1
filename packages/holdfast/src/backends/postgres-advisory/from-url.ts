/** `postgres+advisory://host:port/database`. */
import { defaults } from '../../base/defaults.ts'
import { connectionParameters, postgresClientFromUrl } from '../../clients/postgres/index.ts'
import { asOneOf, asText, type LockerUrl, onOwnClient } from '../../kit/url.ts'
import type { Backend } from '../../spi.ts'
import { openPostgresAdvisory } from './assemble.ts'

/** With postgres.js each session takes one out of the client's own; two are for the rest. */
const CONNECTIONS = defaults.maxSessions + 2

interface Parameters {
  readonly schema: string
  readonly key: 'hashtext'
}

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const options = url.options<Parameters>({ schema: asText, key: asOneOf('hashtext') }, connectionParameters)
  const libraries = { pg: () => url.loadPeer('pg'), postgres: () => url.loadPeer('postgres') }
  const { client, end } = await postgresClientFromUrl(url.location, url.parameters, libraries, CONNECTIONS)
  return onOwnClient(end, () => openPostgresAdvisory({ ...options, client }, { end }))
}
