/** The options of `singleFlight`, with their checks. */
import { InvalidArgumentError } from '../../base/errors.ts'
import type { Fence } from '../../base/fence.ts'
import { checkCallback, checkKnownOptions, checkNumber, checkSignal } from '../../base/options.ts'
import type { Fencing } from '../../base/types.ts'

/** A key's entry in the store. It can be written as JSON if the value can. */
export interface StoredResult<T> {
  readonly value: T
  /** By the wall clock of the process that computed it. */
  readonly storedAtMs: number
}

/** A locker that issues no tokens has none. */
export type FenceOf<F extends Fencing> = F extends 'fenced' ? Fence : undefined

/** Yours: a table, Redis, a file. A few lines around a client are enough. */
export interface SingleFlightStore<T, F extends Fencing = Fencing> {
  /** The entry that `set` was given last; undefined or null if there is none, or it is gone. */
  get(key: string): Promise<StoredResult<T> | null | undefined>
  /**
   * Refuse the result if a newer `fence` has been here: otherwise a process that was paused overwrites a newer result. After
   * `keepMs` the result is not used any more, so the store may remove it.
   *
   * A property and not a method: so the compiler refuses a store that needs fences with a locker that issues none.
   */
  readonly set: (
    key: string,
    result: StoredResult<T>,
    options: { readonly fence: FenceOf<F>; readonly keepMs: number },
  ) => Promise<unknown>
}

export interface SingleFlightOptions<T, F extends Fencing = Fencing> {
  readonly store: SingleFlightStore<T, F>
  /** For how long a result is fresh: 60,000 for a minute. `Infinity` is allowed. */
  readonly keepMs: number
  /**
   * In this time before the end of `keepMs` a call may compute anew: the later, the likelier. The others get the old value.
   * Default 0: never.
   */
  readonly refreshBeforeMs?: number
  /** The TTL of the lease: if the computing process dies, another computes after it. Default: that of the locker. */
  readonly ttlMs?: number
  /** How long to wait for the computation of another process. Default: that of the locker. */
  readonly waitMs?: number
  /** Ends this caller's wait. `compute` goes on while another caller of this process waits for it. */
  readonly signal?: AbortSignal
  /** Called when an early computation fails. */
  readonly onRefreshError?: (error: unknown) => void
  /** Returns numbers in [0, 1), for tests. */
  readonly random?: () => number
}

const known = ['store', 'keepMs', 'refreshBeforeMs', 'ttlMs', 'waitMs', 'signal', 'onRefreshError', 'random']

export function checkOptions<T, F extends Fencing>(options: Partial<SingleFlightOptions<T, F>> = {}): void {
  checkKnownOptions('options', options, known)
  const { store, refreshBeforeMs = 0, signal, onRefreshError, random } = options
  if (typeof store?.get !== 'function' || typeof store.set !== 'function')
    throw new InvalidArgumentError('store', 'must have the methods get and set.')
  const keepMs = checkNumber('keepMs', options.keepMs, { min: 1, infinityAllowed: true })
  const max = Math.min(keepMs, Number.MAX_SAFE_INTEGER)
  checkNumber('refreshBeforeMs', refreshBeforeMs, { min: 0, max })
  checkSignal(signal)
  checkCallback('onRefreshError', onRefreshError)
  checkCallback('random', random)
}
