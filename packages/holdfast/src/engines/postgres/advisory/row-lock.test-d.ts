import { expectTypeOf, test } from 'vitest'
import { lockRow, type SqlTransaction } from './index.ts'

declare const tx: SqlTransaction
const where = { sku: 1 }

test('what may come back depends on what was asked for', () => {
  const waited = () => lockRow(tx, { table: 'stock', where, columns: ['units'] })
  type Waited = Awaited<ReturnType<typeof waited>>
  expectTypeOf<Waited['kind']>().toEqualTypeOf<'locked' | 'not-found'>()
  expectTypeOf<Extract<Waited, { kind: 'locked' }>['row']>().toEqualTypeOf<{ readonly units: unknown }>()

  const asked = () => lockRow(tx, { table: 'stock', where, ifLocked: 'nowait' })
  expectTypeOf<Awaited<ReturnType<typeof asked>>['kind']>().toEqualTypeOf<'locked' | 'not-found' | 'busy'>()

  const skipped = () => lockRow(tx, { table: 'stock', where, ifLocked: 'skip' })
  expectTypeOf<Awaited<ReturnType<typeof skipped>>['kind']>().toEqualTypeOf<'locked' | 'skipped'>()
})

test('what was not asked for cannot be read', async () => {
  const found = await lockRow(tx, { table: 'stock', where, columns: ['units'] })
  // @ts-expect-error the column was not asked for
  if (found.kind === 'locked') found.row.price
  // @ts-expect-error a row that was not found has no columns
  found.row.units
})
