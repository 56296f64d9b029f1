/** The client's side: requests that show the fence of a lease, and end with it. */
import { InvalidArgumentError } from '../../base/errors.ts'
import { type FenceKey, formatFence } from '../../base/fence-text.ts'
import { checkCallback, checkKnownOptions } from '../../base/options.ts'
import type { FencedLease } from '../../base/types.ts'
import { assertHeld, checkProofs } from '../proofs.ts'
import { FENCE_HEADER } from './read-fence.ts'

export interface FencedFetchOptions {
  /** Signs the fence; the service has the same key in `keys`. Without it the service must say `unsigned: true`. */
  readonly signWith?: FenceKey
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch
}

/**
 * A `fetch` whose requests carry the fence of the lease, and are cancelled when it is lost. A redirect is an error, because it
 * would carry the fence to whatever address the answer names; with `redirect: 'manual'` it is answered.
 *
 * @throws LeaseLostError   the lease has ended: nothing was sent
 */
export function fencedFetch(lease: FencedLease, options: FencedFetchOptions = {}): typeof fetch {
  checkKnownOptions('options', options, ['signWith', 'fetch'])
  const { signWith, fetch: send = fetch } = options
  checkCallback('fetch', send)
  const proofs = checkProofs(lease, false)
  const text = formatFence(lease.fence, signWith === undefined ? {} : { signWith })
  return async (input, init = {}) => {
    assertHeld(proofs)
    const asked = input instanceof Request ? input : undefined
    const { redirect = 'error' } = init
    if (redirect === 'follow')
      throw new InvalidArgumentError(
        'redirect',
        'must not be follow: it would carry the fence to another address.',
      )
    const headers = new Headers(init.headers ?? asked?.headers)
    headers.set(FENCE_HEADER, text)
    const signals = [lease.signal, init.signal, asked?.signal].filter(
      (signal) => signal instanceof AbortSignal,
    )
    return send(input, { ...init, headers, redirect, signal: AbortSignal.any(signals) })
  }
}
