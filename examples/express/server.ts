/**
 * A service with a part that only one of its processes may do: it imports files. Each request for an import runs under the lease
 * of the importer; the other processes stand by.
 */

import express from 'express'
import { createLocker, type FencedLease } from 'holdfast'
import { sqliteGuard } from 'holdfast/guards/sqlite'
import { sqlite } from 'holdfast/sqlite'

export type Told =
  | { readonly kind: 'listening'; readonly port: number }
  | { readonly kind: 'leading'; readonly token: string; readonly atMs: number }
  | { readonly kind: 'importing' }

const [locks = '', data = ''] = process.argv.slice(2)
const locker = createLocker(sqlite({ path: locks }), { holder: `pid-${process.pid}` })
const guard = sqliteGuard({ path: data })
const stopping = new AbortController()
let lease: FencedLease | undefined

const app = express()
app.get('/health', (_request, response) => {
  response.json({ leads: lease?.state === 'held' })
})
app.post('/imports/:file', async (request, response) => {
  const held = lease
  if (held?.state !== 'held') return void response.status(503).json({ error: 'another process imports' })
  tell({ kind: 'importing' })
  // The long part. If the lease is lost meanwhile, the guard refuses what follows.
  await new Promise((resolve) => setTimeout(resolve, 300))
  await guard.run(held, (tx) => {
    tx.prepare('INSERT INTO imports VALUES (?, ?)').run(request.params.file, held.fence.token)
  })
  response.status(201).json({ token: held.fence.token.toString() })
})

const server = app.listen(0, '127.0.0.1', () => {
  const address = server.address()
  tell({ kind: 'listening', port: typeof address === 'object' && address !== null ? address.port : 0 })
})

/** Waits for its turn, and leads until it is told to stop or loses the lease; then it stands by again. */
async function lead(): Promise<void> {
  while (!stopping.signal.aborted) {
    const got = await locker.acquire('importer', {
      waitMs: Number.POSITIVE_INFINITY,
      signal: stopping.signal,
    })
    lease = got
    tell({ kind: 'leading', token: got.fence.token.toString(), atMs: Date.now() })
    await new Promise<void>((resolve) => {
      got.signal.addEventListener('abort', () => resolve())
      server.once('close', () => resolve())
    })
    // The requests have ended by now, so nothing works under it any more (T53, early releases).
    await got.release()
  }
}

/** Stops accepting; what is in flight finishes under the lease; then the lease is given up, and the process ends. */
async function shutDown(): Promise<void> {
  // A process that stands by leaves the queue.
  stopping.abort()
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  server.closeIdleConnections()
  await closed
  await leading
  await locker.close()
  await guard.close()
  process.disconnect()
}

const leading = lead().catch((error: unknown) => {
  if (!stopping.signal.aborted) throw error
})
process.once('SIGTERM', () => void shutDown())

function tell(told: Told): void {
  process.send?.(told)
}
