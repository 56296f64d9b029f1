/** Ways without a lock, on PostgreSQL. They work behind a pooler in transaction mode. */

import { type Clock, systemClock } from '../../../base/clock.ts'
import { defaults, limits } from '../../../base/defaults.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkName, checkText } from '../../../base/names.ts'
import { checkKnownOptions, checkNumber } from '../../../base/options.ts'
import { createIdempotent, type Idempotent } from '../../../lockfree/idempotent.ts'
import {
  checkClientOptions,
  type PostgresClient,
  type SqlTransaction,
  sharedDatabase,
} from '../client/index.ts'
import { checkSchema, checkSchemaOptions, tablesSql } from '../tables/tables.ts'
import { type Jobs, PostgresJobs } from './jobs.ts'
import { jobTables } from './jobs-tables.ts'
import { PostgresKeys } from './keys.ts'
import { keyTables } from './keys-sql.ts'

export type {
  Idempotent,
  IdempotentContext,
  IdempotentOptions,
  IdempotentRequest,
} from '../../../lockfree/idempotent.ts'
export type {
  CustomTransaction,
  DrizzleTransaction,
  KyselyTransaction,
  PgTransaction,
  SqlTransaction,
} from '../client/index.ts'
export type * from '../client/types.ts'
export type {
  AddJobOptions,
  ClaimedJob,
  ClaimJobsOptions,
  JobCounts,
  Jobs,
  SetAsideJob,
} from './jobs.ts'

export interface PostgresLockfreeOptions {
  /** A `Pool` of `pg`, or a client of `postgres` (postgres.js). It stays yours. */
  readonly client: PostgresClient
  /** Where the tables are. Default `holdfast`. */
  readonly schema?: string
  /** Whether they may be created. Default: true. `postgresLockfreeSchema()` has the SQL. */
  readonly createSchema?: boolean
  readonly clock?: Clock
  readonly random?: Random
}

/**
 * ```ts
 * const idempotent = postgresIdempotent({ client: pool })
 * const receipt = await idempotent({ scope: 'payments', key, payload: order }, ({ fence }) => charge(order, fence))
 * ```
 */
export function postgresIdempotent(options: PostgresLockfreeOptions): Idempotent<SqlTransaction> {
  const home = check('postgresIdempotent options', options, [])
  return createIdempotent(new PostgresKeys(home), home)
}

export interface PostgresJobsOptions extends PostgresLockfreeOptions {
  readonly queue: string
  /** How long completed jobs and their keys are kept. Default 86,400,000: a day. */
  readonly keepMs?: number
}

/**
 * ```ts
 * const jobs = postgresJobs<{ to: string }>({ client: pool, queue: 'mail' })
 * await jobs.add({ to: 'ada@example.com' })
 * for (const job of await jobs.claimJobs({ limit: 10 })) {
 *   await send(job.payload, job.signal)
 *   await job.complete()
 * }
 * ```
 */
export function postgresJobs<Payload = unknown>(options: PostgresJobsOptions): Jobs<Payload> {
  const parts = check('postgresJobs options', options, ['queue', 'keepMs'])
  const { queue, keepMs = defaults.jobKeepMs } = options
  return new PostgresJobs<Payload>({
    ...parts,
    queue: checkName(checkText('queue', queue, limits.namespaceBytes), 'queue'),
    keepMs: checkNumber('keepMs', keepMs, { min: 0, max: 1e13 }),
  })
}

/** The SQL that creates the tables, for users who apply migrations themselves. */
export function postgresLockfreeSchema(options: { readonly schema?: string } = {}): string {
  checkKnownOptions('postgresLockfreeSchema options', options, ['schema'])
  const schema = checkSchema(options.schema)
  return [keyTables, jobTables].map((part) => tablesSql(part, schema)).join('\n')
}

function check(argument: string, options: PostgresLockfreeOptions, own: readonly string[]) {
  checkClientOptions(argument, options)
  checkKnownOptions(argument, options, ['client', 'schema', 'createSchema', 'clock', 'random', ...own])
  const { clock = systemClock, random = systemRandom } = options
  return {
    database: sharedDatabase(options.client),
    ...checkSchemaOptions(options),
    clock,
    random,
  }
}
