/** A stock of units in SQLite, with and without a guard. */
import { DatabaseSync } from 'node:sqlite'
import express, { type Request } from 'express'
import type { FenceKey } from 'holdfast'
import { fenced } from 'holdfast/guards/http'
import { sqliteGuard } from 'holdfast/guards/sqlite'

type StockRequest = Request<{ sku: string }>

export function createService(path: string, key: FenceKey) {
  const database = new DatabaseSync(path)
  database.exec(
    "CREATE TABLE stock (shelf TEXT PRIMARY KEY, units INTEGER); INSERT INTO stock VALUES ('stock', 10), ('unguarded', 10)",
  )
  const unitsOf = database.prepare('SELECT units FROM stock WHERE shelf = ?')
  const setUnits = database.prepare('UPDATE stock SET units = ? WHERE shelf = ?')
  const units = (shelf: string) => Number(Object.values(unitsOf.get(shelf) ?? {})[0])
  const guard = sqliteGuard({ database })

  const app = express()
  app.use(express.text({ type: '*/*' }))
  const options = { guard, keys: [key], name: (request: StockRequest) => `sku:${request.params.sku}` }
  // The read shuts out every older client before it answers.
  app.get(
    '/stock/:sku',
    fenced(options, (_request, response) => response.send(`${units('stock')}`)),
  )
  app.put(
    '/stock/:sku',
    fenced(options, async (request, response, { fence }) => {
      await guard.run(fence, () => setUnits.run(Number(request.body), 'stock'))
      response.sendStatus(204)
    }),
  )
  app.get('/unguarded/:sku', (_request, response) => response.send(`${units('unguarded')}`))
  app.put('/unguarded/:sku', (request, response) => {
    setUnits.run(Number(request.body), 'unguarded')
    response.sendStatus(204)
  })
  return { app, guard, units }
}
