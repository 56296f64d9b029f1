/** A backend's requests about claims, for tests that send them themselves. */
import type { AnswerRow, Request } from '../../src/engines/postgres/locks/batches.ts'
import { LOCK_CAPACITY } from '../../src/spi.ts'

/** The statement for a batch, of which the answer is `answer`. */
export function applySql(schema: string, requests: readonly Request[]): string {
  const json = JSON.stringify(requests).replaceAll("'", "''")
  return `SELECT ${schema}.apply('default', 'nobody',
    ARRAY(SELECT r FROM jsonb_populate_recordset(NULL::${schema}.request, '${json}') AS r)) AS answer`
}

/** An acquire of the whole name. */
export function acquiring(name: string, attempt: string, rest: Partial<Request> = {}): Request {
  return {
    op: 'g',
    name,
    attempt,
    session: 1,
    ms: 0,
    waits: false,
    mode: 'exclusive',
    weight: LOCK_CAPACITY,
    capacity: LOCK_CAPACITY,
    ...rest,
  }
}

export function rowsOf(answer: string): readonly AnswerRow[] {
  return JSON.parse(`[${answer.slice(1)}]`)
}
