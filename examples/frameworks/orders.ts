/** The work of the four servers: they pack orders, each under the lease of its customer. And the errors that they answer with 503. */
import { setTimeout as pause } from 'node:timers/promises'
import { createLocker, isHoldfastError, type Locker } from 'holdfast'
import { sqlite } from 'holdfast/sqlite'

export type Told = { readonly kind: 'listening'; readonly port: number }

const [locks = '', drainMs = ''] = process.argv.slice(2)

export const openOrders = (): Locker<'fenced'> => createLocker(sqlite({ path: locks }))

/** Work under a lease may go on for `drainMs`. If it has not ended by then, its signal aborts, and it has `graceMs` to stop. */
export const ending = { drainMs: Number(drainMs), graceMs: 10_000 }

export function pack(locker: Locker<'fenced'>, customer: string): Promise<string> {
  return locker.withLease(`customer:${customer}`, async ({ signal }) => {
    await pause(customer === 'slow' ? 600_000 : 50, undefined, { signal })
    return 'packed'
  })
}

/** Errors that mean "not here, not now". All others are bugs, and get 500. In a real service add `BACKEND_UNAVAILABLE`. */
export function isEnding(error: unknown): error is Error {
  const cause = error instanceof Error && error.name === 'AbortError' ? error.cause : error
  return isHoldfastError(cause, 'CLOSED') || isHoldfastError(cause, 'LEASE_LOST')
}

/** Tells the parent the port. The channel to the parent does not keep the process alive, so it exits with 0 when all is closed. */
export function listening(port: number): void {
  process.send?.({ kind: 'listening', port } satisfies Told)
  process.channel?.unref()
}
