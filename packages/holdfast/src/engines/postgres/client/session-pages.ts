/** Sessions as operators see them: public id, holder, TTL and the time that is left. */
import type { Page, SessionState } from '../../../spi.ts'
import type { Row } from './types.ts'

/** There is one row more than the limit if there is another page. */
export function pageOfSessions(rows: readonly Row[], limit: number): Page<SessionState> {
  const items = rows.slice(0, limit).map(([id, holder, ttlMs, leftMs]) => ({
    id: String(id),
    holder: String(holder),
    ttlMs: Number(ttlMs),
    expiresInMs: Number(leftMs),
  }))
  return { items, next: rows.length > limit ? (items.at(-1)?.id ?? null) : null }
}
