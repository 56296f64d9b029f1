import { expect, test } from 'vitest'
import { limits } from '../../base/defaults.ts'
import { cursorOf, positionAt, type Snapshot } from './log-position.ts'

const log = '0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b'
const xid = 10n ** 9n

test('a cursor in the middle of a page, beside 900 open transactions, is one that watch takes', () => {
  const open = Array.from({ length: 900 }, (_, i) => xid + BigInt(i))
  const snapshot: Snapshot = { from: xid + 1_000n, open }
  const position = { log, seen: snapshot, page: { until: snapshot, xid, no: 12n } }
  const cursor = cursorOf(position)
  expect(cursor.length).toBeGreaterThan(10_000)
  expect(cursor.length).toBeLessThanOrEqual(limits.cursorBytes)
  expect(positionAt(cursor)).toEqual(position)
})

test('with more open transactions than a cursor can name, it leads to a gap', () => {
  const open = Array.from({ length: 2_000 }, (_, i) => xid + BigInt(i))
  const cursor = cursorOf({ log, seen: { from: xid + 3_000n, open } })
  expect(cursor.length).toBeLessThanOrEqual(limits.cursorBytes)
  expect(positionAt(cursor)).toBeNull()
})
