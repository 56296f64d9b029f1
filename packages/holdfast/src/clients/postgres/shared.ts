/**
 * One adapter for each client, for guards and the like: they have no end of their own at which they could take back a
 * listener, and one for each of them would pile up.
 */
import { type PostgresDatabase, postgresDatabase } from './database.ts'
import type { PostgresClient } from './types.ts'

const databases = new WeakMap<object, PostgresDatabase>()

export function sharedDatabase(client: PostgresClient): PostgresDatabase {
  let database = databases.get(client)
  if (database === undefined) {
    database = postgresDatabase(client)
    databases.set(client, database)
  }
  return database
}
