/**
 * One client process. A turn is what a naive program does: acquire, read, think, write, release. It does not ask its
 * lease before it writes, and shows the guard its bare fence, so that only the resource can refuse it.
 */
import { flushCompileCache } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import { isHoldfastError } from '../../packages/holdfast/src/base/errors.ts'
import { onEvent } from '../../packages/holdfast/src/base/events.ts'
import type { Lease } from '../../packages/holdfast/src/base/types.ts'
import { createLocker } from '../../packages/holdfast/src/locker/locker.ts'
import { loadEngine } from './engines/index.ts'
import { lockName, type Order, type Report, type Setup, type TurnOutcome } from './messages.ts'
import { Notes } from './notes.ts'
import { nowMs } from './observer.ts'
import { loadResource } from './resources/index.ts'
import { tap } from './tap.ts'
import { Touching } from './touching.ts'

const retryMs = 50
const setup: Setup = JSON.parse(process.argv[2] ?? '')
const { client, ttlMs } = setup
const notes = new Notes(client, (note) => report({ kind: 'note', note }))
const engine = await (await loadEngine(setup.engine)).open(setup.addresses, ttlMs)
const backend = tap(
  engine.backend,
  (grant) => notes.granted(grant),
  (confirmation) => notes.confirmed(confirmation),
)
const locker = createLocker(backend, { ttlMs, holder: client })
const resource = await (await loadResource(setup.resource.name)).open(
  setup.resource.addresses,
  setup.protection,
)
const touching = new Touching({ client, notes, resource, report })

const finishing = new AbortController()
let goOn = () => {}
let isHeld = false
let turn = Promise.resolve()
/** The acquire that waits. */
let waitingFor: string | null = null
onEvent('waiting', () => {
  if (waitingFor !== null) notes.add({ kind: 'queued', at: nowMs(), id: waitingFor })
})
onEvent('lost', () => report({ kind: 'lost' }))

process.on('disconnect', () => process.exit())
process.on('message', (order: Order) => {
  if (order.kind === 'turn') turn = takeTurn(order.entry, order.thinkMs)
  else if (order.kind === 'hold') isHeld = true
  else goOn()
  if (order.kind === 'finish') void finish()
})
report({ kind: 'ready' })
// It is ended by force, so nothing would be kept for the next run otherwise.
flushCompileCache()

async function takeTurn(entry: string, thinkMs: number | null): Promise<void> {
  const lease = await acquireInTheEnd()
  const outcome = lease === null ? 'no-lease' : await work(lease, entry, thinkMs)
  if (lease !== null) await release(lease)
  report({ kind: 'done', entry, outcome })
}

async function work(lease: Lease, entry: string, thinkMs: number | null): Promise<TurnOutcome> {
  const told = new Promise<void>((resolve) => {
    goOn = resolve
    if (finishing.signal.aborted) resolve()
  })
  const read = await touching.read(lease)
  if (typeof read === 'string') return read
  report({ kind: 'read', entry })
  isHeld = thinkMs === null
  const thought = sleep(thinkMs ?? 0).then(() => (isHeld ? told : undefined))
  await Promise.race([told, thought])
  notes.look(lease)
  return touching.write(lease, read, entry)
}

/** Right after a partition a client may not have found its way back yet, and says so: then it is tried again. */
async function acquireInTheEnd(): Promise<Lease | null> {
  for (;;) {
    const lease = await acquire()
    if (lease !== 'try again') return lease
    await sleep(retryMs)
  }
}

async function acquire(): Promise<Lease | null | 'try again'> {
  const { id, end } = notes.invoke({ op: 'acquire', name: lockName, ttlMs, waits: true })
  waitingFor = id
  try {
    const lease = await locker.acquire(lockName, { signal: finishing.signal, waitMs: 60_000 })
    end('ok', { leaseId: lease.id, ...(lease.fence && { token: lease.fence.token }) })
    notes.began(lease, locker.info.driftMs(ttlMs))
    return lease
  } catch (error) {
    end('unknown', { error: String(error) })
    if (finishing.signal.aborted) return null
    if (!isHoldfastError(error)) throw error
    return error.retryable ? 'try again' : null
  } finally {
    waitingFor = null
  }
}

async function release(lease: Lease): Promise<void> {
  const wasLost = lease.state === 'lost'
  const at = nowMs()
  const { end } = notes.invoke({ op: 'release', name: lockName, leaseId: lease.id })
  const releasing = lease.release()
  // Had it been lost by then, that was said before.
  notes.released(lease, at)
  const outcome = await releasing
  end(outcome === 'released' ? 'ok' : wasLost ? 'fail' : 'unknown', { error: outcome })
}

async function finish(): Promise<void> {
  finishing.abort()
  await turn
  await locker.close()
  await engine.close()
  await resource.close()
  report({ kind: 'closed' })
}

function report(what: Report): void {
  process.send?.(what)
}
