/** Tells a refusal of a recipe's own lease from that of another lease, which may have the same name on another engine. */
import { isHoldfastError } from '../base/errors.ts'

/** The public id of the lease that was lost, or whose fence is stale; undefined for other errors. */
export function refusedLeaseId(error: unknown): string | undefined {
  if (isHoldfastError(error, 'LEASE_LOST')) return error.leaseId
  return isHoldfastError(error, 'FENCE_STALE') ? error.fence.grant : undefined
}
