/** Express has no hooks: drain first, while the server listens, and close the server afterwards. */
import type { AddressInfo } from 'node:net'
import express, { type ErrorRequestHandler } from 'express'
import { ending, isEnding, listening, openOrders, pack } from './orders.ts'

const locker = openOrders()
const app = express()

app.post('/orders/:customer', async (request, response) => {
  response.send(await pack(locker, request.params.customer))
})
// Express takes a function with four parameters for an error handler.
const onError: ErrorRequestHandler = (error, _request, response, next) => {
  if (!isEnding(error)) return next(error)
  response.status(503).set('connection', 'close').send(error.message)
}
app.use(onError)

const server = app.listen(0, '127.0.0.1', () => listening((server.address() as AddressInfo).port))

process.once('SIGTERM', async () => {
  await locker.close(ending)
  server.close() // waits for the answers that are still written
})
