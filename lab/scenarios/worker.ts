/**
 * One client process. A turn is what a naive program does: acquire, read, think, write, release. It does not ask its
 * lease before it writes, and shows the guard its bare fence, so that nobody but the resource can refuse it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { sqlite } from '../../packages/holdfast/src/backends/sqlite/index.ts'
import { isHoldfastError } from '../../packages/holdfast/src/core/errors.ts'
import { onEvent } from '../../packages/holdfast/src/core/events.ts'
import { createLocker } from '../../packages/holdfast/src/core/locker.ts'
import type { FencedLease } from '../../packages/holdfast/src/core/types.ts'
import { sqliteGuard } from '../../packages/holdfast/src/guards/sqlite.ts'
import { lockName, type Order, type Report, resourceName, type Setup, type TurnOutcome } from './messages.ts'
import { Notes } from './notes.ts'
import { nowMs } from './observer.ts'
import { openResource, readEntries, writeEntries } from './resource.ts'
import { tap } from './tap.ts'

const setup: Setup = JSON.parse(process.argv[2] ?? '')
const { client, guarded, ttlMs } = setup
const notes = new Notes(client, (note) => report({ kind: 'note', note }))
const backend = tap(
  sqlite({ path: setup.locks }),
  (grant) => notes.granted(grant),
  (confirmation) => notes.confirmed(confirmation),
)
const locker = createLocker(backend, { ttlMs, holder: client })
const database = openResource(setup.resource)
const guard = sqliteGuard({ database, name: 'guard' })

const finishing = new AbortController()
let goOn = () => {}
let turn = Promise.resolve()
/** The acquire that waits. */
let waitingFor: string | null = null
onEvent('waiting', () => {
  if (waitingFor !== null) notes.add({ kind: 'queued', at: nowMs(), id: waitingFor })
})

process.on('disconnect', () => process.exit())
process.on('message', (order: Order) => {
  if (order.kind === 'turn') turn = takeTurn(order.entry, order.thinkMs)
  else goOn()
  if (order.kind === 'finish') void finish()
})
report({ kind: 'ready' })

async function takeTurn(entry: string, thinkMs: number | null): Promise<void> {
  const lease = await acquire()
  const outcome = lease === null ? 'no-lease' : await work(lease, entry, thinkMs)
  if (lease !== null) await release(lease)
  report({ kind: 'done', entry, outcome })
}

async function work(lease: FencedLease, entry: string, thinkMs: number | null): Promise<TurnOutcome> {
  const told = new Promise<void>((resolve) => {
    goOn = resolve
    if (finishing.signal.aborted) resolve()
  })
  let before: string[] = []
  const read = await touch(lease, 'read', {}, () => {
    before = readEntries(database)
  })
  if (read !== 'ok') return read
  report({ kind: 'read', entry, token: lease.fence.token })
  await (thinkMs === null ? told : Promise.race([told, sleep(thinkMs)]))
  notes.look(lease)
  const facts = { entry, saw: before.at(-1) ?? 'nothing', wrote: entry }
  const written = await touch(lease, 'write', facts, () => writeEntries(database, [...before, entry]))
  return written === 'ok' ? 'written' : written
}

async function acquire(): Promise<FencedLease | null> {
  const { id, end } = notes.invoke({ op: 'acquire', name: lockName, ttlMs, waits: true })
  waitingFor = id
  try {
    const lease = await locker.acquire(lockName, { signal: finishing.signal, waitMs: 60_000 })
    end('ok', { leaseId: lease.id, token: lease.fence.token })
    notes.began(lease, locker.info.driftMs(ttlMs))
    return lease
  } catch (error) {
    end('unknown', { error: String(error) })
    if (finishing.signal.aborted || isHoldfastError(error)) return null
    throw error
  } finally {
    waitingFor = null
  }
}

async function release(lease: FencedLease): Promise<void> {
  const wasLost = lease.state === 'lost'
  const at = nowMs()
  const { end } = notes.invoke({ op: 'release', name: lockName, leaseId: lease.id })
  const releasing = lease.release()
  // Had it been lost by then, that was said before.
  notes.released(lease, at)
  const outcome = await releasing
  end(outcome === 'released' ? 'ok' : wasLost ? 'fail' : 'unknown', { error: outcome })
}

/** The only difference between the two runs is in here. */
async function touch(
  { id: leaseId, fence }: FencedLease,
  access: 'read' | 'write',
  facts: { readonly entry?: string; readonly saw?: string; readonly wrote?: string },
  effect: () => void,
): Promise<'ok' | 'refused' | 'unknown'> {
  const { token } = fence
  const about = { name: lockName, leaseId, token }
  const { end } = notes.invoke({
    op: access,
    ...about,
    resource: resourceName,
    ...(guarded && { guard: guard.name }),
    ...facts,
  })
  const judged = { kind: 'guard', guard: guard.name, process: client, access, ...about } as const
  try {
    let at = 0
    const whole = () => {
      at = nowMs()
      effect()
    }
    if (guarded) await guard.run(fence, whole)
    else whole()
    if (guarded) notes.add({ ...judged, at, verdict: 'accepted' })
    end('ok')
    return 'ok'
  } catch (error) {
    if (isHoldfastError(error, 'FENCE_STALE')) {
      notes.add({ ...judged, at: nowMs(), verdict: 'refused', reason: 'stale', highest: error.highest })
      end('fail', { error: error.code })
      return 'refused'
    }
    if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') && !isSqliteError(error)) throw error
    end('unknown', { error: String(error) })
    return 'unknown'
  }
}

function isSqliteError(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ERR_SQLITE_ERROR'
}

async function finish(): Promise<void> {
  finishing.abort()
  await turn
  await locker.close()
  await guard[Symbol.asyncDispose]()
  database.close()
  report({ kind: 'closed' })
}

function report(what: Report): void {
  process.send?.(what)
}
