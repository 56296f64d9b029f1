/** `info` of a backend: what nearly all engines have in common, and what is a backend's own. */
import { defaultDriftMs } from '../base/defaults.ts'
import type { BackendInfo, Fencing } from '../spi.ts'

/** Lateness of the first waiter on a machine or server that is busy but not overloaded. */
const BUSY_MARGIN_MS = 100

type Own =
  | 'name'
  | 'scope'
  | 'fencing'
  | 'namespace'
  | 'issuer'
  | 'epoch'
  | 'prolongation'
  | 'assumptions'
  | 'confirmed'

/**
 * Everything that is not given: all modes, a queue, lock-delay, hold-at-least and data at the engine, a TTL from 50 ms to a
 * day. `pollMs` is not part of `info` but makes its slack: waiters look by themselves at this interval, so the first one looks in time,
 * and after two polls at the latest (400: a slack of 900 ms). Without a queue it is core that polls: `defaults.pollMs`.
 */
export function describeInfo<F extends Fencing>(
  own: Pick<BackendInfo<F>, Own> & Partial<Omit<BackendInfo<F>, Own>> & { readonly pollMs?: number },
): BackendInfo<F> {
  const { pollMs = 0, ...rest } = own
  return {
    modes: ['exclusive', 'shared', 'permits'],
    waiting: 'queue',
    lockDelay: 'server',
    holdAtLeast: 'server',
    data: true,
    ttlMs: { min: 50, max: 86_400_000, step: 1 },
    driftMs: defaultDriftMs,
    expirySlackMs: () => 2 * pollMs + BUSY_MARGIN_MS,
    ...rest,
  }
}
