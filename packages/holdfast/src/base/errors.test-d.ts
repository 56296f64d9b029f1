/** Types that must compile and types that must not: checked by the compiler alone, never run. */
import {
  type AnyHoldfastError,
  type CallOutcome,
  type ErrorCode,
  HoldfastError,
  isHoldfastError,
  type LossReason,
} from './errors.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
declare function expectTrue<_T extends true>(): void

/** `code` discriminates: a `switch` narrows, and may leave no code out. */
export function advice(
  error: unknown,
): string | readonly string[] | bigint | boolean | LossReason | CallOutcome {
  if (!isHoldfastError(error)) throw error
  expectTrue<Equal<typeof error, AnyHoldfastError>>()
  expectTrue<Equal<typeof error.code, ErrorCode>>()
  // @ts-expect-error Not every error has a reason.
  void error.reason
  switch (error.code) {
    case 'ACQUIRE_TIMEOUT':
      return error.heldByThisLocker
    case 'QUEUE_FULL':
      return `${error.resource}: ${error.maxWaiters}`
    case 'LEASE_LOST':
      return error.reason
    case 'FENCE_STALE':
      return error.highest
    case 'FENCE_FOREIGN':
      return error.expected
    case 'FENCE_INVALID':
      return error.problem
    case 'BACKEND_UNAVAILABLE':
      return error.outcome
    case 'CAPACITY_MISMATCH':
      return error.resource
    case 'INVALID_ARGUMENT':
      return error.argument
    case 'UNSUPPORTED':
    case 'CLOSED':
    case 'CONFLICT':
      return error.message
    case 'KEY_REUSED':
    case 'STORED_FAILURE':
    case 'NOT_COMMITTED':
      return error.key
    default:
      expectTrue<Equal<typeof error, never>>()
      return error
  }
}

/** A narrowed error is still a `HoldfastError`, and `retryable` can be asked. */
export function isWorthTrying(error: unknown): boolean {
  const base: HoldfastError | undefined = isHoldfastError(error) ? error : undefined
  if (error instanceof HoldfastError && isHoldfastError(error))
    expectTrue<Equal<typeof error.code, ErrorCode>>()
  return base?.retryable ?? false
}
