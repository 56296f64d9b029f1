import assert from 'node:assert/strict'
import { DatabaseSync } from 'node:sqlite'
import { describe, test } from 'vitest'
import { SqliteRig } from '../../../../test/sqlite/rig.ts'
import { Database } from './database.ts'
import { prepareStatements } from './statements.ts'
import { noStatistics } from './statistics.ts'

describe('the statements', () => {
  test('find their rows by a key: none but those of a whole session reads a whole table, or one list once per row of another', async () => {
    await using rig = new SqliteRig()
    rig.open()
    const connection = new DatabaseSync(rig.path)
    const texts: string[] = []
    const listening = {
      prepare(sql: string) {
        texts.push(sql)
        return connection.prepare(sql)
      },
    } as DatabaseSync
    prepareStatements(new Database(listening, 'normal', noStatistics()))
    assert(texts.length > 40)
    for (const sql of texts) {
      if (/^(BEGIN|COMMIT|ROLLBACK|PRAGMA)/.test(sql)) continue
      const plan = connection
        .prepare(`EXPLAIN QUERY PLAN ${sql}`)
        .all()
        .map((step) => String(step.detail))
      for (const step of plan) {
        // `meta` has one row, a list that was passed in is read once, the index of an order is read at one end, and the
        // steps of a subquery are listed themselves.
        const isWhole = /^SCAN (?!meta\b|\(subquery|listed\b|asked\b|json_each\b|CONSTANT ROW)/.test(step)
        const readsOneEnd =
          /min\(|max\(/.test(sql) && /USING COVERING INDEX (sessions_by_expiry|names_by_closing)/.test(step)
        // Holders have no index by session, on purpose: see schema.ts.
        const isBySession = step === 'SCAN holders' && /holders\s+WHERE (holders\.)?session = /.test(sql)
        assert(!isWhole || readsOneEnd || isBySession, `${step}\n${sql}`)
      }
      const listAt = plan.findIndex((step) => /^SCAN (listed|asked)/.test(step))
      const tableAt = plan.findIndex((step) => /^SEARCH (holders|waiters|sessions)/.test(step))
      if (sql.includes('AS asked')) assert(listAt < tableAt, `${plan.join('\n')}\n${sql}`)
    }
    connection.close()
  })
})
