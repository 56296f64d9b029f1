/** A foreign holder, for operators: it took the lock key with another client than Holdfast. */
import { createHash } from 'node:crypto'
import { type HolderState, LOCK_CAPACITY } from '../../../spi.ts'

/**
 * `digest`: of the value that it stored, so that an operator's call is bound to that holder and not to the next one (T78, late operators).
 * `leftMs`: negative if it has no end.
 */
export function foreignHolder(digest: string, leftMs: number): HolderState {
  return {
    id: `foreign:${digest}`,
    holder: '(another client)',
    mode: 'exclusive',
    weight: LOCK_CAPACITY,
    // A foreign holder has no attempt of ours.
    session: '',
    ttlMs: 0,
    token: null,
    heldForMs: 0,
    expiresInMs: leftMs < 0 ? Number.POSITIVE_INFINITY : leftMs,
  }
}

/** The same as `redis.sha1hex` in a script. */
export function digestOf(value: string): string {
  return createHash('sha1').update(value).digest('hex')
}
