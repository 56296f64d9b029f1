/** Fastify: `preClose` drains while the server still listens. `onClose` would run after the last request, and wait for it. */
import Fastify from 'fastify'
import { ending, isEnding, listening, openOrders, pack } from './orders.ts'

const locker = openOrders()
const app = Fastify()

app.post<{ Params: { customer: string } }>('/orders/:customer', ({ params }) => pack(locker, params.customer))
app.setErrorHandler((error, _request, reply) => {
  if (!isEnding(error)) throw error
  return reply.code(503).header('connection', 'close').send(error.message)
})

// Fastify answers new requests with 503 by itself from here on.
app.addHook('preClose', () => locker.close(ending))
process.once('SIGTERM', () => void app.close())

const address = await app.listen({ host: '127.0.0.1', port: 0 })
listening(Number(new URL(address).port))
