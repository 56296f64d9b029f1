/**
 * Read, compute, write back, without a lock: the write says which version it was computed from, and changes nothing if
 * that is no longer the current one.
 *
 * Failures between its steps: read · compute · write · (answer)
 *   another writes after the read: the write changes no row. Everything is read and computed again, a few times.
 *   the row is deleted after the read: the write changes no row either; the next read finds none, and says so.
 *   the answer to the write is lost: it may have been applied. It is not tried again, because the next read would find
 *     the row as this write left it, and change it twice; the error comes out.
 *   the version comes back to an earlier value (a timestamp of a stepped clock, a row that was deleted and made again):
 *     an old write passes. Let it count up, and never start again.
 */
import { type Clock, sleep, systemClock } from '../base/clock.ts'
import { defaults } from '../base/defaults.ts'
import { ConflictError, InvalidArgumentError, isHoldfastError } from '../base/errors.ts'
import { emit, hasListeners } from '../base/events.ts'
import { type Random, systemRandom } from '../base/ids.ts'
import { checkFunction, checkInteger, checkKnownOptions, checkNumber, checkSignal } from '../base/options.ts'

export interface OptimisticOptions {
  /** After the first try. Default 3. */
  readonly retries?: number
  /** Before each retry, a random pause up to this long. Default 100 ms. */
  readonly jitterMs?: number
  readonly signal?: AbortSignal
  readonly clock?: Clock
  readonly random?: Random
}

export type OptimisticOutcome<Row> =
  /** `row` is what was read before the write that succeeded. */
  | { readonly kind: 'updated'; readonly row: Row; readonly attempts: number }
  /** There is no such row, or there is none any more. */
  | { readonly kind: 'absent'; readonly attempts: number }

/**
 * `read` answers with the row and its version, or null if there is none. `write` computes what follows from the row, and
 * writes it on condition of its version; it answers how many rows it has changed (or whether it has).
 *
 * ```ts
 * await optimisticUpdate(
 *   () => readStock(42),
 *   ({ units, version }) => writeStock(42, units - 1, version),   // UPDATE … WHERE sku = 42 AND version = $version
 * )
 * ```
 *
 * @throws ConflictError   others were quicker each time; nothing has been changed
 */
export async function optimisticUpdate<Row>(
  read: () => Promise<Row | null | undefined> | Row | null | undefined,
  write: (row: Row, attempt: number) => Promise<number | bigint | boolean> | number | bigint | boolean,
  options: OptimisticOptions = {},
): Promise<OptimisticOutcome<Row>> {
  checkKnownOptions('options', options, ['retries', 'jitterMs', 'signal', 'clock', 'random'])
  checkFunction('read', read)
  checkFunction('write', write)
  const { clock = systemClock, random = systemRandom } = options
  const retries = checkInteger('retries', options.retries ?? defaults.optimisticRetries, {
    min: 0,
    max: 1_000,
  })
  const jitterMs = checkNumber('jitterMs', options.jitterMs ?? defaults.optimisticJitterMs, { min: 0 })
  const signal = checkSignal(options.signal)
  let conflict: unknown
  for (let attempts = 1; attempts <= retries + 1; attempts++) {
    if (attempts > 1)
      await sleep(clock, random.fraction() * jitterMs, {
        ...(signal !== undefined && { signal }),
        keepsProcessAlive: true,
      })
    signal?.throwIfAborted()
    const row = await read()
    if (row === null || row === undefined) return { kind: 'absent', attempts }
    try {
      if (hasChanged(await write(row, attempts))) {
        if (hasListeners('optimistic')) emit('optimistic', { outcome: 'updated', attempts })
        return { kind: 'updated', row, attempts }
      }
      conflict = undefined
    } catch (error) {
      if (!isConflict(error)) throw error
      conflict = error
    }
  }
  if (hasListeners('optimistic')) emit('optimistic', { outcome: 'conflict', attempts: retries + 1 })
  throw new ConflictError(
    `The row was changed by others ${retries + 1} times in a row.`,
    conflict === undefined ? undefined : { cause: conflict },
  )
}

function hasChanged(answer: unknown): boolean {
  if (typeof answer === 'boolean') return answer
  if (typeof answer !== 'number' && typeof answer !== 'bigint')
    throw new InvalidArgumentError(
      'write',
      'must answer how many rows it has changed (the rowCount of pg, the count of postgres.js, the changes of SQLite), ' +
        'or whether it has.',
    )
  if (answer > 1)
    throw new InvalidArgumentError(
      'write',
      `has changed ${answer} rows: its condition must name one row and its version. They stay changed.`,
    )
  return Number(answer) === 1
}

const SQLITE_BUSY_SNAPSHOT = 517

/** The database has undone the write because of others, and said so. */
function isConflict(error: unknown): boolean {
  if (isHoldfastError(error)) return error.code === 'CONFLICT'
  const { code, errcode } = (error ?? {}) as { code?: unknown; errcode?: unknown }
  return code === '40001' || code === '40P01' || errcode === SQLITE_BUSY_SNAPSHOT
}
