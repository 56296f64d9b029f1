/** Ways without a lock that need no engine of their own; those that do are in `holdfast/lockfree/<engine>`. */
export type {
  Idempotent,
  IdempotentContext,
  IdempotentOptions,
  IdempotentRequest,
} from './idempotent.ts'
export { type OptimisticOptions, type OptimisticOutcome, optimisticUpdate } from './optimistic-update.ts'
