/** Hono on Node: as with Express, drain first, and close the server of `serve` afterwards. */
import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { ending, isEnding, listening, openOrders, pack } from './orders.ts'

const locker = openOrders()
const app = new Hono()

app.post('/orders/:customer', async (context) =>
  context.text(await pack(locker, context.req.param('customer'))),
)
app.onError((error, context) => {
  if (!isEnding(error)) throw error
  return context.text(error.message, 503, { connection: 'close' })
})

const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }, ({ port }) => listening(port))

process.once('SIGTERM', async () => {
  await locker.close(ending)
  server.close() // waits for the answers that are still written
})
