/** Strangers may do nothing with anything that Holdfast creates in PostgreSQL. */
import assert from 'node:assert/strict'
import { startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { describe, test } from 'vitest'
import { postgresAdvisorySchema } from '../../src/engines/postgres/advisory/index.ts'
import { postgresGuardSchema } from '../../src/engines/postgres/guard/postgres-guard.ts'
import { postgresLockfreeSchema } from '../../src/engines/postgres/lockfree/index.ts'
import { postgresSchema } from '../../src/engines/postgres/locks/index.ts'

describe.runIf(wanted('postgres'))('everything that is created in PostgreSQL', () => {
  test('T80 gives PUBLIC no right on tables, sequences and schemas, and no function with the rights of its owner', async () => {
    await using server = await startPostgres()
    const client = new pg.Client(server.url)
    await client.connect()
    for (const sql of [
      postgresSchema(),
      ...(wanted('postgres-advisory') ? [postgresAdvisorySchema()] : []),
      postgresGuardSchema(),
      postgresLockfreeSchema(),
    ])
      await client.query(sql)
    const { rows: granted } = await client.query(`
      SELECT c.relname AS object, a.privilege_type AS right FROM pg_class c, aclexplode(c.relacl) a
      WHERE c.relnamespace = 'holdfast'::regnamespace AND a.grantee = 0
      UNION ALL
      SELECT n.nspname, a.privilege_type FROM pg_namespace n, aclexplode(n.nspacl) a
      WHERE n.nspname = 'holdfast' AND a.grantee = 0`)
    assert.deepEqual(granted, [])
    const { rows: functions } = await client.query(`
      SELECT p.proname AS name, has_function_privilege('public', p.oid, 'EXECUTE') AS "isOpen", p.proconfig AS settings
      FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace AND p.prosecdef`)
    assert.deepEqual(functions, [
      { name: 'fence_row', isOpen: false, settings: ['search_path=pg_catalog, pg_temp'] },
    ])
    await client.end()
  })
})
