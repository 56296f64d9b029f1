/** What the four servers do: they pack orders, each under the lease of its customer. And what they answer while they end. */
import { setTimeout as pause } from 'node:timers/promises'
import { createLocker, isHoldfastError, type Locker } from 'holdfast'
import { sqlite } from 'holdfast/sqlite'

export type Told = { readonly kind: 'listening'; readonly port: number }

const [locks = '', drainMs = ''] = process.argv.slice(2)

export const openOrders = (): Locker<'fenced'> => createLocker(sqlite({ path: locks }))

/** What is under a lease may go on for `drainMs`; what has not ended by then sees its signal abort, and has `graceMs` to stop. */
export const ending = { drainMs: Number(drainMs), graceMs: 10_000 }

export function pack(locker: Locker<'fenced'>, customer: string): Promise<string> {
  return locker.withLease(`customer:${customer}`, async ({ signal }) => {
    await pause(customer === 'slow' ? 600_000 : 50, undefined, { signal })
    return 'packed'
  })
}

/** Errors that mean "not here, not now". All others are bugs, and a 500. `BACKEND_UNAVAILABLE` belongs here as well. */
export function isEnding(error: unknown): error is Error {
  const cause = error instanceof Error && error.name === 'AbortError' ? error.cause : error
  return isHoldfastError(cause, 'CLOSED') || isHoldfastError(cause, 'LEASE_LOST')
}

/** Tells the parent; after the end nothing keeps the process alive, and it exits with 0. */
export function listening(port: number): void {
  process.send?.({ kind: 'listening', port } satisfies Told)
  process.channel?.unref()
}
