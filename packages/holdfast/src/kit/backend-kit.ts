/** Helpers that every backend needs in the same way. Authors of backends outside this package find them in `holdfast/spi`. */

import { cancelledCall } from '../base/aborting.ts'
import { allPages } from '../base/all-pages.ts'
import type { Instant } from '../base/clock.ts'
import { defaults, limits } from '../base/defaults.ts'
import { BackendUnavailableError } from '../base/errors.ts'
import { checkNamespace, checkText, compareNames } from '../base/names.ts'
import { checkInteger } from '../base/options.ts'
import type { Backend, BackendInfo, Call, ClaimState, Fencing, NameState, Page, PageRequest } from '../spi.ts'

export { cancelledCall }

/** The options by which every backend is told whose locks it keeps and in whose name it issues tokens. */
export interface IdentityOptions {
  readonly namespace?: string
  readonly issuer?: string
  /** The top bits of every token: all tokens of epoch 1 are greater than all of epoch 0. Default 0. */
  readonly epoch?: number
}

/**
 * Common options are checked before the engine is reached; the default issuer often needs what only the engine knows. It must be
 * another one whenever the count of tokens starts again: make it of an id that is created together with the count (G2).
 */
export function checkIdentity(options: IdentityOptions): {
  readonly namespace: string
  readonly issuer: string | undefined
  readonly epoch: number
} {
  const { namespace = defaults.namespace, issuer, epoch = 0 } = options
  return {
    namespace: checkNamespace(namespace),
    issuer: issuer === undefined ? undefined : checkText('issuer', issuer, limits.issuerBytes),
    epoch: checkInteger('epoch', epoch, { min: 0, max: limits.maxEpoch }),
  }
}

/** The TTL that a session is granted: at least `info.ttlMs.min`, and a multiple of its `step`. Core asks for no other. */
export function raisedTtlMs({ ttlMs: { min, step } }: BackendInfo<Fencing>, askedMs: number): number {
  return Math.max(min, Math.ceil(askedMs / step) * step)
}

/**
 * Since when an attached session may be believed. Attaching prolongs nothing, so it counts from when the engine last
 * prolonged the session: a whole TTL before the end that the engine knows.
 */
export function prolongedSince(
  now: Instant,
  session: { readonly ttlMs: number; readonly leftMs: number },
): Instant {
  const agoMs = session.ttlMs - session.leftMs
  return { monotonicMs: now.monotonicMs - agoMs, wallMs: now.wallMs - agoMs }
}

type OrNull<T> = { readonly [K in keyof T]: undefined extends T[K] ? T[K] | null | undefined : T[K] }

/** The claim of a record with these fields, and others, as it is shown. Engines have null, or nothing, for what is missing. */
export function claimState(record: OrNull<ClaimState>): ClaimState {
  const { id, holder, owner, mode, weight, note, session, ttlMs } = record
  const state = { id, holder, mode, weight, session, ttlMs }
  return { ...state, ...(owner != null && { owner }), ...(note != null && { note }) }
}

/**
 * One page of what is in memory as a whole, in byte order of the key, which is also the cursor. It looks at every item, and
 * sorts those of the page only.
 */
export function pageOf<T>(
  items: Iterable<T>,
  { cursor, limit }: PageRequest,
  keyOf: (item: T) => string,
): Page<T> {
  const byKey = (a: T, b: T) => compareNames(keyOf(a), keyOf(b))
  let page: T[] = []
  /** The last key of a full page: what comes after it belongs to another page. */
  let last: string | undefined
  const cut = () => {
    page = page.sort(byKey).slice(0, limit)
    last = keyOf(page.at(-1) as T)
  }
  for (const item of items) {
    const key = keyOf(item)
    if (cursor !== undefined && compareNames(key, cursor) <= 0) continue
    if (last !== undefined && compareNames(key, last) > 0) continue
    page.push(item)
    if (page.length > 2 * limit) cut()
  }
  if (page.length > limit) cut()
  return { items: page.sort(byKey), next: last ?? null }
}

/** All pages of a list together, in byte order. A name that was on two of them is there once, as it was seen last. */
export async function listAll(backend: Backend, prefix: string, call: Call): Promise<NameState[]> {
  const byName = new Map<string, NameState>()
  for await (const states of allPages((page) => backend.list(prefix, page, call)))
    for (const state of states) byName.set(state.name, state)
  return [...byName.values()].sort((a, b) => compareNames(a.name, b.name))
}

/** For work of a backend's own, which no caller cancels. */
export const neverCancelled: Call = {
  cancelled: false,
  onCancel: () => () => {},
  signal: new AbortController().signal,
}

/** Every call starts with it: a cancelled call is not sent. */
export function throwIfCancelled(backend: string, call: Call): void {
  if (call.cancelled) throw cancelledCall(backend, call.signal, 'not-applied')
}

/** For an operator's call that reaches the engine after its `notAfterMs`. */
export function operatorCallExpired(backend: string): BackendUnavailableError {
  return new BackendUnavailableError(
    backend,
    'the call reached the engine after its expiry, and nothing was changed. Inspect the name, then repeat the call',
    'not-applied',
  )
}
