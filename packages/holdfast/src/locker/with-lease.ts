/** Runs a body under a lease, and tells apart what the body did from what became of the lease (G11). */
import { type BodyOutcome, isHoldfastError, LeaseLostError } from '../base/errors.ts'
import type { AboutLease } from '../base/events.ts'
import type { Fence } from '../base/fence.ts'
import type { BackendInfo, LeaseBase } from '../base/types.ts'
import { bodyChannel, traced } from './tracing.ts'

type Engine = Pick<BackendInfo, 'name' | 'namespace'>

export interface RunningBody<T> {
  readonly outcome: Promise<T>
  /** Resolves when the body itself has ended, however it ended. */
  readonly finished: Promise<void>
}

export function runWithLease<L extends LeaseBase, T>(
  lease: L,
  body: (lease: L) => Promise<T> | T,
  engine: Engine,
): RunningBody<T> {
  const running = settle(() =>
    bodyChannel.hasSubscribers
      ? traced(bodyChannel, aboutLease(lease, engine), async () => body(lease))
      : body(lease),
  )
  return { finished: running.then(() => {}), outcome: running.then((ended) => conclude<T>(lease, ended)) }
}

function aboutLease(
  lease: LeaseBase & { readonly fence?: Fence },
  { name: backend, namespace }: Engine,
): AboutLease {
  const { name, holder, id, fence } = lease
  return { backend, namespace, name, holder, id, token: fence?.token ?? null }
}

async function settle(body: () => unknown): Promise<BodyOutcome> {
  try {
    return { status: 'fulfilled', value: await body() }
  } catch (reason) {
    return { status: 'rejected', reason }
  }
}

async function conclude<T>(lease: LeaseBase, ended: BodyOutcome): Promise<T> {
  // Asked before the release: whether it was lost while the body ran.
  const loss = lease.state === 'lost' ? (lease.signal.reason as LeaseLostError) : undefined
  await lease.release()
  if (loss !== undefined) throw withBody(loss, ended)
  if (ended.status === 'rejected') throw ended.reason
  return ended.value as T
}

/** A new error for every body: the signal's own error is shared by all of its listeners. */
function withBody(loss: LeaseLostError, body: BodyOutcome): LeaseLostError {
  const cause = body.status === 'rejected' && !isHoldfastError(body.reason, 'LEASE_LOST') ? body.reason : loss
  const error = new LeaseLostError(loss.resource, loss.reason, {
    cause,
    ttlMs: loss.ttlMs,
    detail: loss.detail,
  })
  error.body = body
  return error
}
