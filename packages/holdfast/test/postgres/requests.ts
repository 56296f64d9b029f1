/** A backend's requests about claims, for tests that send them themselves. */
import type { AnswerRow, Request } from '../../src/engines/postgres/locks/batches.ts'
import { acquireFields, releaseFields } from '../../src/engines/postgres/locks/sql/claims.ts'
import { LOCK_CAPACITY } from '../../src/spi.ts'

/** The statement for these requests, of which the answer is `answer`. */
export function applySql(schema: string, requests: readonly Request[]): string {
  const [first] = requests
  if (requests.length === 1 && first?.op === 'g') return oneSql(schema, 'apply_acquire', first, acquireFields)
  if (requests.length === 1 && first?.op === 'r' && !first.ms)
    return oneSql(schema, 'apply_release', first, releaseFields)
  return batchSql(schema, requests)
}

/** The same, however few they are. */
export function batchSql(schema: string, requests: readonly Request[]): string {
  const json = JSON.stringify(requests).replaceAll("'", "''")
  return `SELECT ${schema}.apply('default', 'nobody',
    ARRAY(SELECT r FROM jsonb_populate_recordset(NULL::${schema}.request, '${json}') AS r)) AS answer`
}

function oneSql(schema: string, call: string, request: Request, fields: typeof acquireFields): string {
  const values = fields.map((field) => {
    const value = request[field]
    return value === undefined ? 'NULL' : `'${String(value).replaceAll("'", "''")}'`
  })
  return `SELECT ${schema}.${call}('default', 'nobody', ${values.join(', ')}) AS answer`
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
