/**
 * Warnings of the server through postgres.js, which hands them to one function per client, without saying to which
 * statement they belong. So a warning about the standby counts for every statement that is in flight.
 */
import { isStandbyWarning } from './failures.ts'
import type { Notice } from './types.ts'

const brand = Symbol.for('holdfast.postgres.notices')

export type NoticeHandler = (notice: Notice) => void

interface BrandedHandler extends NoticeHandler {
  readonly [brand]: Set<() => void>
}

/**
 * For `postgres(url, { onnotice: standbyNotices() })`: lets Holdfast see that a wait for a synchronous standby was
 * cancelled. `next` gets all notices as well.
 */
export function standbyNotices(next?: (notice: Notice) => void): NoticeHandler {
  const listeners = new Set<() => void>()
  const handler = (notice: Notice) => {
    if (isStandbyWarning(notice)) for (const listener of [...listeners]) listener()
    next?.(notice)
  }
  return Object.assign(handler, { [brand]: listeners })
}

/** Null: this client was made without `standbyNotices`. */
export function noticeListenersOf(options: object): Set<() => void> | null {
  const handler = (options as { onnotice?: Partial<BrandedHandler> }).onnotice
  return handler?.[brand] ?? null
}
