/** Puts a backend together: checks its options, makes first contact, and describes what it promises. */

import { type Clock, systemClock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkKnownOptions, checkNumber } from '../../../base/options.ts'
import { checkIdentity } from '../../../kit/backend-kit.ts'
import { describeInfo } from '../../../kit/info.ts'
import {
  checkClientOptions,
  type OwnClient,
  type PostgresClient,
  postgresDatabase,
  withinContact,
} from '../client/index.ts'
import { checkSchemaOptions } from '../tables/tables.ts'
import { PostgresBackend } from './backend.ts'
import { Connection } from './connection.ts'
import { ensureSchema } from './schema.ts'

export interface PostgresOptions {
  /** A `Pool` of `pg`, or a client of `postgres` (postgres.js). It stays yours: close it after the locker. */
  readonly client: PostgresClient
  /** Where Holdfast keeps its tables and functions. Default: `holdfast`. */
  readonly schema?: string
  /** Whether it may create the schema. Default: true. `postgresSchema()` has the SQL, to apply it yourself. */
  readonly createSchema?: boolean
  /**
   * Only with `pg`: whether frequent statements have a name, so that a connection prepares them once. Behind a pooler that does not
   * keep them, Holdfast finds out and goes without. `false`: for a proxy that ties a client to one connection because of them. Default: true.
   */
  readonly prepare?: boolean
  readonly clock?: Clock
  readonly random?: Random
  readonly namespace?: string
  /** Default: `postgres:<id made with the schema>/<namespace>`. */
  readonly issuer?: string
  /** The top bits of every token. After you have restored a backup, raise it, for example from 0 to 1. Default 0. */
  readonly epoch?: number
  /**
   * How often a waiter looks by itself while notifications do not arrive. Up to as much again is added at random: the default 200 means
   * every 200 to 400 ms.
   */
  readonly pollMs?: number
}

/** Further parts: those that tests may replace, and a client of `openLocker`, which is ended with the backend. */
export interface Surroundings extends Partial<OwnClient> {
  /** SQL of the schema, to plant a fault. */
  readonly schemaSql?: string
}

const knownOptions = [
  'client',
  'schema',
  'createSchema',
  'prepare',
  'clock',
  'random',
  'namespace',
  'issuer',
  'epoch',
  'pollMs',
]

/** As `postgres`, for tests and measurements: with a view of what it does. */
export async function openPostgres(
  options: PostgresOptions,
  surroundings: Surroundings = {},
): Promise<PostgresBackend> {
  checkClientOptions('postgres options', options)
  checkKnownOptions('postgres options', options, knownOptions)
  const { clock = systemClock, random = systemRandom } = options
  const { namespace, issuer, epoch } = checkIdentity(options)
  const { schema, create } = checkSchemaOptions(options)
  const pollMs = checkNumber('pollMs', options.pollMs ?? defaults.pollMs, { min: 1, max: 60_000 })

  const { schemaSql: sql, end, connectMs = defaults.callTimeoutMs } = surroundings
  const { prepare = true } = options
  if (typeof prepare !== 'boolean') throw new InvalidArgumentError('prepare', 'must be true or false.')
  // A client of our own has no transactions of the user's.
  const database = postgresDatabase(options.client, { spare: end === undefined, prepare })
  try {
    const terms = { backend: 'postgres', clock, limitMs: connectMs + defaults.callTimeoutMs }
    const made = { create, ...(sql !== undefined && { sql }) }
    const origin = await withinContact(database, terms, (contact) => ensureSchema(contact, schema, made))
    const connection = new Connection({
      database,
      schema,
      namespace,
      clock,
      random,
      pollMs,
      ...(end !== undefined && { end }),
    })
    const info = describeInfo({
      namespace,
      epoch,
      pollMs,
      issuer: issuer ?? `postgres:${origin}/${namespace}`,
      name: 'postgres',
      scope: 'cluster',
      fencing: 'fenced',
      prolongation: 'committed',
      assumptions: [
        'All who must exclude each other use the same primary; after a fail-over it is the old one or a synchronous ' +
          'standby, with everything that was confirmed, and the old primary serves no client any more.',
        'What the server has confirmed survives its crash: fsync and full_page_writes are on.',
        "The server's clock runs as fast as the clients' clocks; a step of it forward, also by a fail-over to a machine " +
          'whose clock is ahead, ends leases early, and then only the guard protects. A step back keeps the names of a dead ' +
          'holder for as much longer.',
        'Only Holdfast writes to the tables of its schema, and its sequence is not set back.',
        'After the database was restored from a backup or copied, the epoch is raised before it is used under the same ' +
          'issuer.',
      ],
      confirmed: 'A keep-alive whose transaction has been committed, counted from before it was sent.',
    })
    return new PostgresBackend(connection, info, random)
  } catch (error) {
    await database.close()
    throw error
  }
}
