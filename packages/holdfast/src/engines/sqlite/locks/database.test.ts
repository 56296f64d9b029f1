import assert from 'node:assert/strict'
import { DatabaseSync } from 'node:sqlite'
import { describe, test } from 'vitest'
import { Database } from './database.ts'
import { noStatistics } from './statistics.ts'

describe('numbered parameters', () => {
  const sql = 'SELECT ?2 AS second, ?1 AS first, ?2 || ?3 AS both'
  const expected = { second: 'b', first: 'a', both: 'bc' }

  test('are given their values', () => {
    const database = new Database(new DatabaseSync(':memory:'), 'normal', noStatistics())
    assert.deepEqual({ ...database.query<object>(sql).first('a', 'b', 'c') }, expected)
  })

  test('are given their values also by a release of Node that knows only plain ones', () => {
    const connection = new DatabaseSync(':memory:')
    const seen: string[] = []
    const old = {
      prepare(text: string) {
        seen.push(text)
        if (/\?\d/.test(text)) throw new Error('column index out of range')
        return connection.prepare(text)
      },
    } as DatabaseSync
    const database = new Database(old, 'normal', noStatistics())
    assert.deepEqual({ ...database.query<object>(sql).first('a', 'b', 'c') }, expected)
    assert.equal(seen.at(-1), 'SELECT ? AS second, ? AS first, ? || ? AS both')
  })
})
