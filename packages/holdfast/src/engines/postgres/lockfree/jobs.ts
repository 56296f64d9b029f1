/**
 * Jobs that several workers take from one table, each job to one worker at a time.
 *
 *   ready ──claimJobs: hidden for visibilityMs, starts + 1, a new attempt and a higher token──▶ claimed
 *   claimed ──complete, by the attempt that has it──▶ done ──keepMs──▶ (no row)
 *   claimed ──fail, by the attempt that has it──▶ ready, later
 *   claimed ──visibilityMs over──▶ ready; after maxStarts: set aside, until it is requeued
 *
 *   The answer to the claim is lost: the jobs come back when their time is over. That costs a start.
 *   A worker dies, or is paused past the time: another gets the job. The slow one's `signal` aborts, guards refuse its fence
 *     once the other has been there, and it cannot complete, prolong or give back the job: the row has another attempt.
 *   The answer to the completion is lost: it can be repeated, and says the truth, because the row stays for a while.
 *   A crash after the work and before the completion: the work is done again. For work within this database there is no
 *     such moment: `complete({ tx })` is part of the transaction that does the work.
 *
 * Ordering keys are explained in `jobs-tables.ts`.
 */

import { type Clock, type Instant, instantOf } from '../../../base/clock.ts'
import { defaults, limits } from '../../../base/defaults.ts'
import { InvalidArgumentError, LeaseLostError, messageOf } from '../../../base/errors.ts'
import { emit, type HoldfastEvents, hasListeners } from '../../../base/events.ts'
import type { Fence } from '../../../base/fence.ts'
import { newAttempt, type Random } from '../../../base/ids.ts'
import { checkText } from '../../../base/names.ts'
import { checkInteger, checkKnownOptions, checkNumber } from '../../../base/options.ts'
import { claimFence, KeptClaim } from '../../../lockfree/kept-claim.ts'
import { fromJson, resourceName, toJson } from '../../../lockfree/payload.ts'
import {
  type Parameter,
  quoteIdentifier,
  type Row,
  type SqlTransaction,
  sqlRunnerOf,
} from '../client/index.ts'
import { jobStatements } from './jobs-sql.ts'
import { jobTables } from './jobs-tables.ts'
import { type Home, Part } from './part.ts'

export interface AddJobOptions {
  /** A job with a key that the queue has seen (and not forgotten, see `keepMs`) is not added again. */
  readonly key?: string
  /**
   * Jobs with the same ordering key run one at a time, in the order in which they were committed. A job that is retried, or
   * was added for later, holds up the later ones of its key; one that is set aside does not.
   */
  readonly orderingKey?: string
  /** The delay before a worker may get it. 60,000: in a minute at the earliest. Default 0. */
  readonly delayMs?: number
  /** A job that was given to a worker so often, and is not completed, is set aside. 3: its third start is its last. Default 5. */
  readonly maxStarts?: number
  /** Adds it in a transaction of yours. The tables must exist then: `await jobs.ready()`. */
  readonly tx?: SqlTransaction
}

export interface ClaimJobsOptions {
  /** The most jobs to claim. 10: up to ten, which share one `visibilityMs`. Default 1. */
  readonly limit?: number
  /** For how long they are hidden from others. 30,000, the default: after 30 s without `extend` another worker gets them. */
  readonly visibilityMs?: number
}

export interface ClaimedJob<Payload> {
  readonly id: string
  readonly key: string | null
  readonly orderingKey: string | null
  readonly payload: Payload
  /** How often it has been given to a worker, this time included: 1 at the first. */
  readonly starts: number
  readonly maxStarts: number
  /**
   * A proof for guards: the worker that gets the job next has a higher token. With an ordering key it is the key's: so has the
   * worker of the key's next job.
   */
  readonly fence: Fence
  /** Aborts when the time is over, or another worker has it. */
  readonly signal: AbortSignal
  readonly remainingMs: number
  /** Hides it for `visibilityMs` from now. @throws LeaseLostError */
  extend(visibilityMs?: number): Promise<void>
  /** Marks the job as done. In a transaction of yours, it is done if that is committed. @throws LeaseLostError */
  complete(options?: { readonly tx?: SqlTransaction }): Promise<void>
  /**
   * Gives it back, to be started again after `retryAfterMs` (default at once). `not-held`: it was not this attempt's any
   * more, because it is another's by now, or done; nothing has happened.
   */
  fail(error?: unknown, options?: { readonly retryAfterMs?: number }): Promise<'given-back' | 'not-held'>
}

export interface SetAsideJob {
  readonly id: string
  readonly key: string | null
  readonly orderingKey: string | null
  readonly payload: unknown
  readonly starts: number
  readonly lastError: string | null
}

export interface JobCounts {
  /** Jobs that are due, also those that wait behind another job of their ordering key. */
  readonly ready: number
  /** Jobs that are claimed, or were added for later. */
  readonly hidden: number
  /** Given to workers `maxStarts` times, and not completed. */
  readonly setAside: number
  readonly done: number
}

export interface Jobs<Payload = unknown> {
  readonly queue: string
  /** Makes the tables, if need be. Every other call does so too, but for those in a transaction of yours. */
  ready(): Promise<void>
  /** The id of the job; null if there is one with this key already. */
  add(payload: Payload, options?: AddJobOptions): Promise<string | null>
  /**
   * The oldest that are due, none of which another worker has, and at most one of each ordering key; an empty list if there
   * are none.
   */
  claimJobs(options?: ClaimJobsOptions): Promise<readonly ClaimedJob<Payload>[]>
  count(): Promise<JobCounts>
  /** Jobs that were set aside, oldest first, with the last error of each; 100 unless told. */
  listSetAside(options?: { readonly limit?: number }): Promise<readonly SetAsideJob[]>
  /** Gives a job that was set aside all its starts again; false if it was not set aside. It is the next of its ordering key. */
  requeue(id: string): Promise<boolean>
  /** Removes completed jobs of this queue that are older than `keepMs`; how many. `claimJobs` does so now and then. */
  prune(): Promise<number>
}

export interface JobParts extends Home {
  readonly queue: string
  readonly keepMs: number
  readonly random: Random
}

type Statement = keyof ReturnType<typeof jobStatements>
type Query = (
  name: Statement,
  parameters: readonly Parameter[],
  tx?: SqlTransaction,
) => Promise<readonly Row[]>

const PRUNING_INTERVAL_MS = 600_000

export class PostgresJobs<Payload> implements Jobs<Payload> {
  readonly queue: string
  readonly #parts: JobParts
  readonly #tables: Part
  readonly #query: Query
  #prunedMs = Number.NEGATIVE_INFINITY

  constructor(parts: JobParts) {
    this.queue = parts.queue
    this.#parts = parts
    this.#tables = new Part(jobTables, parts)
    const sql = jobStatements(quoteIdentifier(parts.schema))
    this.#query = (name, parameters, tx) =>
      this.#tables.query(sql[name], parameters, tx === undefined ? undefined : sqlRunnerOf(tx))
  }

  async ready(): Promise<void> {
    await this.#tables.origin()
  }

  async add(payload: Payload, options: AddJobOptions = {}): Promise<string | null> {
    checkKnownOptions('options', options, ['key', 'orderingKey', 'delayMs', 'maxStarts', 'tx'])
    const { key, orderingKey, delayMs = 0, maxStarts = defaults.jobMaxStarts, tx } = options
    const parameters = [
      this.queue,
      key === undefined ? null : checkText('key', key, limits.nameBytes),
      orderingKey === undefined ? null : checkText('orderingKey', orderingKey, limits.nameBytes),
      toJson('payload', payload),
      String(checkNumber('delayMs', delayMs, { min: 0, max: 1e13 })),
      String(checkInteger('maxStarts', maxStarts, { min: 1, max: 1_000_000 })),
    ]
    const [row] = await this.#query('add', parameters, tx)
    return row === undefined ? null : String(row[0])
  }

  async claimJobs(options: ClaimJobsOptions = {}): Promise<readonly ClaimedJob<Payload>[]> {
    checkKnownOptions('options', options, ['limit', 'visibilityMs'])
    const limit = checkInteger('limit', options.limit ?? 1, { min: 1, max: 10_000 })
    const visibilityMs = checkVisibility(options.visibilityMs ?? defaults.jobVisibilityMs)
    await this.#pruneIfDue()
    const { clock, random } = this.#parts
    const issuer = `jobs:${await this.#tables.origin()}`
    const attempt = newAttempt(random)
    const claim = { query: this.#query, clock, queue: this.queue, issuer, attempt, visibilityMs }
    const since = instantOf(clock)
    const rows = await this.#query('claim', [this.queue, String(limit), attempt, String(visibilityMs)])
    return rows.map((row) => new PostgresJob<Payload>({ ...claim, since }, row))
  }

  async count(): Promise<JobCounts> {
    const [row = []] = await this.#query('count', [this.queue])
    const [ready = 0, hidden = 0, setAside = 0, done = 0] = row.map(Number)
    return { ready, hidden, setAside, done }
  }

  async listSetAside(options: { readonly limit?: number } = {}): Promise<readonly SetAsideJob[]> {
    checkKnownOptions('options', options, ['limit'])
    const limit = checkInteger('limit', options.limit ?? 100, { min: 1, max: 10_000 })
    const rows = await this.#query('setAside', [this.queue, String(limit)])
    return rows.map(([id, key, orderingKey, body, starts, lastError]) => ({
      id: String(id),
      key: key as string | null,
      orderingKey: orderingKey as string | null,
      payload: fromJson(String(body)),
      starts: Number(starts),
      lastError: lastError as string | null,
    }))
  }

  async requeue(id: string): Promise<boolean> {
    if (typeof id !== 'string' || !/^[0-9]{1,18}$/.test(id))
      throw new InvalidArgumentError('id', 'must be the id of a job.')
    return (await this.#query('requeue', [this.queue, id])).length === 1
  }

  async prune(): Promise<number> {
    const [row] = await this.#query('prune', [this.queue, String(this.#parts.keepMs)])
    return Number(row?.[0])
  }

  async #pruneIfDue(): Promise<void> {
    const nowMs = this.#parts.clock.monotonicMs()
    if (nowMs - this.#prunedMs < PRUNING_INTERVAL_MS) return
    this.#prunedMs = nowMs
    // A failed removal does not count: the rows are removed another time.
    await this.prune().catch(() => 0)
  }
}

/** One call of `claimJobs`. */
interface JobClaim {
  readonly query: Query
  readonly clock: Clock
  readonly queue: string
  readonly issuer: string
  readonly attempt: string
  readonly since: Instant
  readonly visibilityMs: number
}

class PostgresJob<Payload> implements ClaimedJob<Payload> {
  readonly id: string
  readonly key: string | null
  readonly orderingKey: string | null
  readonly payload: Payload
  readonly starts: number
  readonly maxStarts: number
  readonly fence: Fence
  readonly #claim: JobClaim
  readonly #kept: KeptClaim
  #isTold = false

  constructor(claim: JobClaim, row: Row) {
    const [id, key, orderingKey, body, starts, maxStarts, token] = row
    const { clock, queue, issuer, attempt, since, visibilityMs } = claim
    this.id = String(id)
    this.key = key as string | null
    this.orderingKey = orderingKey as string | null
    this.payload = fromJson(String(body)) as Payload
    this.starts = Number(starts)
    this.maxStarts = Number(maxStarts)
    // No slash in the last part: no two queues and keys have one resource.
    const last = this.orderingKey === null ? this.id : `key:${encodeURIComponent(this.orderingKey)}`
    const resource = resourceName('jobs', queue, last)
    this.fence = claimFence({ issuer, resource, token: BigInt(String(token)), attempt })
    this.#claim = claim
    this.#kept = new KeptClaim({ clock, resource, since, ttlMs: visibilityMs, advice: KEEP_LONGER })
  }

  get signal(): AbortSignal {
    return this.#kept.signal
  }

  get remainingMs(): number {
    return this.#kept.remainingMs
  }

  async extend(visibilityMs = this.#claim.visibilityMs): Promise<void> {
    checkVisibility(visibilityMs)
    const since = instantOf(this.#claim.clock)
    // A lost job stays lost, even if it was not claimed since.
    this.signal.throwIfAborted()
    if (!(await this.#act('extend', [String(visibilityMs)]))) throw this.#lost()
    if (!this.#kept.confirm(since, visibilityMs)) this.signal.throwIfAborted()
  }

  async complete(options: { readonly tx?: SqlTransaction } = {}): Promise<void> {
    checkKnownOptions('options', options, ['tx'])
    if (!(await this.#act('complete', [], options.tx))) throw this.#lost()
    this.#tell('done')
    // In a transaction that is not committed yet, the job is still ours.
    if (options.tx === undefined) this.#kept.stop()
  }

  async fail(
    error?: unknown,
    options: { readonly retryAfterMs?: number } = {},
  ): Promise<'given-back' | 'not-held'> {
    checkKnownOptions('options', options, ['retryAfterMs'])
    const retryAfterMs = checkNumber('retryAfterMs', options.retryAfterMs ?? 0, { min: 0, max: 1e13 })
    const stored = error === undefined ? null : storable(messageOf(error))
    // After its last start a job is set aside at once, and does not hold up its ordering key.
    const hiddenMs = this.starts < this.maxStarts ? retryAfterMs : 0
    const isOurs = await this.#act('fail', [stored, String(hiddenMs)])
    if (isOurs) {
      this.#kept.stop()
      this.#tell(this.starts < this.maxStarts ? 'retried' : 'set-aside')
    }
    return isOurs ? 'given-back' : 'not-held'
  }

  /** False: the job is not this attempt's any more. */
  async #act(
    name: 'extend' | 'complete' | 'fail',
    parameters: readonly Parameter[],
    tx?: SqlTransaction,
  ): Promise<boolean> {
    const rows = await this.#claim.query(name, [this.id, this.#claim.attempt, ...parameters], tx)
    if (rows.length === 0) this.#kept.lose('taken-over')
    return rows.length === 1
  }

  /** Once: a completion may be repeated. */
  #tell(outcome: HoldfastEvents['job']['outcome']): void {
    if (this.#isTold) return
    this.#isTold = true
    if (hasListeners('job')) emit('job', { name: this.#claim.queue, outcome, starts: this.starts })
  }

  #lost(): LeaseLostError {
    return new LeaseLostError(this.fence.name, 'taken-over', { advice: KEEP_LONGER })
  }
}

function checkVisibility(visibilityMs: unknown): number {
  return checkNumber('visibilityMs', visibilityMs, { min: 50, max: 86_400_000 })
}

const KEEP_LONGER =
  'Stop the work: another worker gets the job, or has it. Claim with a longer visibilityMs, call extend() in time, or ' +
  'claim fewer jobs at once.'

const LONGEST_ERROR = 2_000

/** PostgreSQL stores no U+0000, and half a character would be refused. */
function storable(message: string): string {
  return message.slice(0, LONGEST_ERROR).replaceAll('\0', '').toWellFormed()
}
