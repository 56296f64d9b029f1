/** A schema with a fault in it: to show that a test can fail. */
import { schemaSql } from '../../src/backends/postgres/schema.ts'

/** Replaces text that must be there. */
export function plantedSchema(
  schema: string,
  changes: readonly [find: string | RegExp, replacement: string][],
): string {
  let sql = schemaSql(schema)
  for (const [find, replacement] of changes) {
    const changed = sql.replaceAll(typeof find === 'string' ? find : new RegExp(find, 'g'), replacement)
    if (changed === sql) throw new Error(`there is nothing like ${find} in the schema any more`)
    sql = changed
  }
  return sql
}
