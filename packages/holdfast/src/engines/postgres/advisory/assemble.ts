/** Puts a backend together: checks its options, makes first contact, and describes what it promises. */
import { type Clock, systemClock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { UnsupportedError } from '../../../base/errors.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkKnownOptions } from '../../../base/options.ts'
import { checkIdentity } from '../../../kit/backend-kit.ts'
import { describeInfo } from '../../../kit/info.ts'
import type { BackendInfo } from '../../../spi.ts'
import {
  checkClientOptions,
  checkServer,
  isPostgresJs,
  type OwnClient,
  type PgPool,
  postgresDatabase,
  withinContact,
} from '../client/index.ts'
import { checkSchemaOptions, ensureTables } from '../tables/tables.ts'
import { PostgresAdvisoryBackend } from './backend.ts'
import { Connection, NAME } from './connection.ts'
import { checkKeyChoice, type KeyChoice } from './keys.ts'
import { refuseTransactionPooler } from './pooler.ts'
import { advisoryPart } from './schema.ts'

export interface PostgresAdvisoryOptions {
  /** A `Pool` of `pg`. It stays yours: close it after the locker. The connections for locks are opened beside the pool. */
  readonly client: PgPool
  /** Where Holdfast keeps its tables and functions. Default: `holdfast`. */
  readonly schema?: string
  /** Whether it may create them. Default: true. `postgresAdvisorySchema()` has the SQL, to apply it yourself. */
  readonly createSchema?: boolean
  /**
   * The advisory key of a name, to exclude code that locks by hand: a function, or `hashtext` for code that locks
   * `hashtext('name')`. Default: 64 bits of a hash of namespace and name.
   */
  readonly key?: KeyChoice
  readonly clock?: Clock
  readonly random?: Random
  readonly namespace?: string
  /** Default: `postgres-advisory:<id made with the tables>/<namespace>`. */
  readonly issuer?: string
  /** The top bits of every token. After you have restored a backup, raise it, for example from 0 to 1. Default 0. */
  readonly epoch?: number
}

const knownOptions = [
  'client',
  'schema',
  'createSchema',
  'key',
  'clock',
  'random',
  'namespace',
  'issuer',
  'epoch',
]

const SERVER = {
  backend: NAME,
  version: 14,
  ifOlder:
    'It has no idle_session_timeout, so a holder that went silent would keep its locks. Upgrade it, or use holdfast/postgres ' +
    'or withTransactionLock().',
}

/** Clients that were found to reach the server without a transaction pooler in between. */
const direct = new WeakSet<PgPool>()

/** As `postgresAdvisory`, with a view of what it does. `end`: ends the client with the backend. */
export async function openPostgresAdvisory(
  options: PostgresAdvisoryOptions,
  { end, connectMs = defaults.callTimeoutMs }: Partial<OwnClient> = {},
): Promise<PostgresAdvisoryBackend> {
  checkClientOptions('postgresAdvisory options', options)
  checkKnownOptions('postgresAdvisory options', options, knownOptions)
  const { client, clock = systemClock, random = systemRandom } = options
  const { namespace, issuer, epoch } = checkIdentity(options)
  const { schema, create } = checkSchemaOptions(options)
  const key = checkKeyChoice(options.key)
  if (isPostgresJs(client))
    throw new UnsupportedError(
      `${NAME}: needs a Pool of pg. A lock lasts as long as its connection, and postgres.js does not tell when one ends. ` +
        'holdfast/postgres and withTransactionLock() take a client of postgres.js.',
    )
  const database = postgresDatabase(client, { backend: NAME, clock })
  try {
    const terms = { backend: NAME, clock, limitMs: connectMs + defaults.callTimeoutMs }
    const { origin } = await withinContact(database, terms, async (contact) => {
      await checkServer(contact, SERVER)
      if (!direct.has(client)) await refuseTransactionPooler(database)
      direct.add(client)
      return ensureTables(contact, advisoryPart, schema, { create })
    })
    const connection = new Connection({
      database,
      schema,
      namespace,
      clock,
      random,
      key,
      ...(end !== undefined && { end }),
    })
    const described = { namespace, epoch, issuer: issuer ?? `${NAME}:${origin}/${namespace}` }
    return new PostgresAdvisoryBackend(connection, infoOf(described))
  } catch (error) {
    await database.close()
    throw error
  }
}

/** Time that the server may take to end a connection whose time is up, when it is busy but not overloaded. */
const SERVER_SLACK_MS = 250

function infoOf(described: Pick<BackendInfo, 'namespace' | 'issuer' | 'epoch'>): BackendInfo<'fenced'> {
  return describeInfo({
    ...described,
    name: NAME,
    scope: 'cluster',
    fencing: 'fenced',
    modes: ['exclusive', 'shared'],
    waiting: 'poll',
    lockDelay: 'none',
    holdAtLeast: 'none',
    data: false,
    ttlMs: { min: 100, max: 86_400_000, step: 1 },
    expirySlackMs: () => SERVER_SLACK_MS + defaults.pollMs + defaults.pollJitterMs,
    prolongation: 'committed',
    assumptions: [
      'The connection is the lease: when it is cut or ended, the server gives its locks away at once, and the holder learns ' +
        'it with its next keep-alive; until then only the guard protects.',
      'All who must exclude each other use the same database of the same primary, without a pooler in transaction mode in ' +
        'between; after a fail-over the old primary serves no client any more.',
      'The tokens of a primary survive its crash and a fail-over: fsync is on, and the next primary is the old one or a ' +
        'synchronous standby.',
      "The server's clock runs as fast as the clients' clocks; a step of it forward may end leases early, and then only the " +
        'guard protects, and a step back lets a holder that went silent keep its locks for that much longer.',
      'Only Holdfast changes the settings of its connections and writes to its tables, and its sequence is not set back.',
      'After the database was restored from a backup or copied, the epoch is raised before it is used under the same ' +
        'issuer.',
    ],
    confirmed:
      'A statement that was answered on the connection that has the lock, counted from before it was sent: the server ends ' +
      'the connection when it has heard nothing for a TTL.',
  })
}
