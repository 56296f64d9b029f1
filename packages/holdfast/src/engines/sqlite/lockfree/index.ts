/** Ways without a lock, on a SQLite file: for all processes of one machine. */
import { type Clock, hasSharedZero, systemClock } from '../../../base/clock.ts'
import { InvalidArgumentError, UnsupportedError } from '../../../base/errors.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import { checkKnownOptions } from '../../../base/options.ts'
import { createIdempotent, type Idempotent } from '../../../lockfree/idempotent.ts'
import { checkFolderOf, openDatabase, ownStep, type SqliteDatabase } from '../client/index.ts'
import { SqliteKeys } from './keys.ts'

export type {
  Idempotent,
  IdempotentContext,
  IdempotentOptions,
  IdempotentRequest,
} from '../../../lockfree/idempotent.ts'
export type { SqliteDatabase, SqliteParameter, SqliteStatement } from '../client/index.ts'

export interface SqliteIdempotentOptions {
  /** The file in which the keys are kept, best the one in which the work is done. A connection of its own is opened. */
  readonly path: string
  readonly clock?: Clock
  readonly random?: Random
}

export function sqliteIdempotent(options: SqliteIdempotentOptions): Idempotent<SqliteDatabase> {
  if (options === undefined) throw new InvalidArgumentError('sqliteIdempotent options', 'must be given.')
  checkKnownOptions('sqliteIdempotent options', options, ['path', 'clock', 'random'])
  const { path, clock = systemClock, random = systemRandom } = options
  if (typeof path !== 'string' || path === '' || path === ':memory:')
    throw new InvalidArgumentError('path', 'must be the path of a file.')
  checkFolderOf(path)
  if (clock === systemClock && !hasSharedZero)
    throw new UnsupportedError(
      'sqliteIdempotent needs a monotonic clock that all processes of the machine share. Bun and Deno count from the ' +
        'start of the process. Use Node, or holdfast/lockfree/postgres.',
    )
  const database = ownStep(path, () => openDatabase(path), 'store of idempotency keys')
  return createIdempotent(new SqliteKeys(database, clock, random), { clock, random })
}
