/** A task of the workload: one operation, chosen by its own dice, on names that everybody wants. */
import { isHoldfastError } from '../../packages/holdfast/src/base/errors.ts'
import type {
  AcquireOptions,
  FencedLease,
  HoldOptions,
  LeaseBase,
} from '../../packages/holdfast/src/base/types.ts'
import type { Client } from './client.ts'
import { NAMES } from './faults.ts'
import type { Stream } from './random.ts'
import type { TrackedLease } from './tracked.ts'

const SEMAPHORE = { name: 'permits', capacity: 3 }

type Operation = (client: Client, dice: Stream, aborted: Error) => Promise<void>

const operations: readonly (readonly [weight: number, what: string, operation: Operation])[] = [
  [30, 'acquire', acquire],
  [15, 'tryAcquire', tryAcquire],
  [20, 'withLease', withLease],
  [8, 'acquireAll', acquireAll],
  [10, 'permits', permits],
  [16, 'shared', shared],
  [2, 'replaceLocker', (client) => client.replaceLocker()],
  [1, 'forceRelease', forceRelease],
]

const totalWeight = operations.reduce((sum, [weight]) => sum + weight, 0)

export function operate(client: Client, dice: Stream, aborted: Error): Promise<void> {
  let at = dice.fraction() * totalWeight
  for (const [weight, what, operation] of operations) {
    at -= weight
    if (at >= 0) continue
    client.world.count(`operation ${what}`)
    return operation(client, dice, aborted)
  }
  return Promise.resolve()
}

/** Acquires that have come to an end, by the reason for which they may be cancelled. */
const settled = new WeakSet<Error>()
const ABORT_GRACE_MS = 100

async function obtain<T>(aborted: Error, acquiring: Promise<T>): Promise<T> {
  try {
    return await acquiring
  } finally {
    settled.add(aborted)
  }
}

// --- operations ----------------------------------------------------------------------------------------------

async function acquire(client: Client, dice: Stream, aborted: Error): Promise<void> {
  const name = dice.pick(NAMES)
  const options = acquireOptions(client, dice, aborted)
  await hold(client, await obtain(aborted, client.locker.acquire(name, options)), options, dice)
}

async function tryAcquire(client: Client, dice: Stream, aborted: Error): Promise<void> {
  const name = dice.pick(NAMES)
  const options = holdOptions(client, dice, aborted)
  const lease = await obtain(aborted, client.locker.tryAcquire(name, options))
  if (lease !== null) await hold(client, lease, options, dice)
}

async function shared(client: Client, dice: Stream, aborted: Error): Promise<void> {
  const options = { ...acquireOptions(client, dice, aborted), mode: 'shared' as const }
  const name = dice.pick(NAMES)
  await hold(client, await obtain(aborted, client.locker.acquire(name, options)), options, dice)
}

async function permits(client: Client, dice: Stream, aborted: Error): Promise<void> {
  const { name, capacity } = SEMAPHORE
  const options = { ...acquireOptions(client, dice, aborted), capacity, weight: dice.integer(1, 2) }
  await hold(client, await obtain(aborted, client.locker.acquirePermits(name, options)), options, dice)
}

async function acquireAll(client: Client, dice: Stream, aborted: Error): Promise<void> {
  const names = dice.chance(0.5) ? ['b', 'a'] : ['c', 'a', 'b']
  const { gathering } = client
  const count = (by: number) => {
    for (const name of names) gathering.set(name, (gathering.get(name) ?? 0) + by)
  }
  count(1)
  const options = { ...acquireOptions(client, dice, aborted), waitMs: dice.between(500, 9_000) }
  const startMs = client.world.nowMs
  const set = await obtain(aborted, client.locker.acquireAll(names, options)).finally(() => count(-1))
  // One deadline for all of them (T54, several names, one deadline), give or take what clocks and stops do.
  client.world.noteWait(client, startMs, options.waitMs)
  const tracked = set.leases.map((lease) => client.track(lease, options))
  try {
    for (const each of tracked) await work(client, each, dice)
  } finally {
    for (const each of tracked) client.world.checks.releasing(each)
    await set.release()
  }
}

async function withLease(client: Client, dice: Stream, aborted: Error): Promise<void> {
  const result = {}
  let ran: TrackedLease | undefined
  let succeeded = false
  const name = dice.pick(NAMES)
  const options = acquireOptions(client, dice, aborted)
  try {
    const returned = await client.locker.withLease(name, options, async (lease) => {
      settled.add(aborted)
      const tracked = client.track(lease, options)
      ran = tracked
      tracked.isBodyRunning = true
      try {
        await work(client, tracked, dice)
        succeeded = true
        return result
      } finally {
        tracked.isBodyRunning = false
        // `withLease` releases in the same breath.
        client.world.checks.releasing(tracked)
      }
    })
    if (returned !== result) client.world.fail('G11', 'withLease does not return what its body returned')
  } catch (error) {
    settled.add(aborted)
    const isLoss = isHoldfastError(error, 'LEASE_LOST')
    if (ran?.lossReason !== undefined && isLoss && error.body === undefined)
      client.world.fail('G11', `withLease hides what its body did: ${String(error)}`)
    if (succeeded && !isLoss)
      client.world.fail('G11', `withLease replaces what its body returned by ${String(error)}`)
    throw error
  }
}

async function forceRelease(client: Client, dice: Stream): Promise<void> {
  await client.locker.forceRelease(dice.pick(NAMES), { all: true, reason: 'an operator' })
}

// --- holding -------------------------------------------------------------------------------------------------

async function hold(client: Client, lease: LeaseBase, options: HoldOptions, dice: Stream): Promise<void> {
  const tracked = client.track(lease, options)
  try {
    await work(client, tracked, dice)
  } finally {
    client.world.checks.releasing(tracked)
    const released = lease.release()
    if (dice.chance(0.85)) await released
    else if (dice.chance(0.3)) await lease.release()
  }
}

/** Reads and writes the resource under the lease, for as long as the lease is believed in. */
async function work(client: Client, tracked: TrackedLease, dice: Stream): Promise<void> {
  const { world } = client
  const { ttlMs } = world.settings
  const isLong = dice.chance(0.2) && !world.isStopping
  const longMs = isLong ? dice.between(0.5, 1.6) * ttlMs : dice.between(5, 400)
  const { lease } = tracked
  const mode = 'fence' in lease ? (lease as FencedLease).fence.mode : undefined
  if (mode !== undefined && dice.chance(0.8)) {
    if (mode === 'exclusive') await update(client, tracked, longMs)
    else await lookTwice(client, tracked, longMs, dice)
    return
  }
  await client.process.sleep(longMs / 2)
  if (!world.checks.believes(tracked)) return
  if (dice.chance(0.3)) await lease.setData(`by ${lease.id}`)
  if (dice.chance(0.3)) await lease.renew()
  else if (dice.chance(0.4)) await ensure(lease, ttlMs * 0.4)
  else await client.process.sleep(longMs / 2)
  world.checks.believes(tracked)
}

async function ensure(lease: LeaseBase, ms: number): Promise<void> {
  try {
    await lease.ensure(ms)
  } catch (error) {
    // More than a lease with a short `maxHoldMs` can still have is refused, and rightly so.
    if (!isHoldfastError(error, 'INVALID_ARGUMENT')) throw error
  }
}

async function update(client: Client, tracked: TrackedLease, thinkMs: number): Promise<void> {
  const { checks } = client.world
  const { fence } = tracked.lease as FencedLease
  if (!checks.believes(tracked)) return
  const read = await client.visit({ kind: 'read', fence })
  if (read === null) return
  await client.process.sleep(thinkMs)
  if (!checks.believes(tracked)) return
  await client.visit({ kind: 'write', fence, read })
  checks.believes(tracked)
}

/** A client that passes the guard twice with one shared fence has seen the same thing twice: no writer came between (G5). */
async function lookTwice(
  client: Client,
  tracked: TrackedLease,
  thinkMs: number,
  dice: Stream,
): Promise<void> {
  const { checks, settings } = client.world
  const { fence } = tracked.lease as FencedLease
  if (!checks.believes(tracked)) return
  const first = await client.visit({ kind: 'read', fence })
  if (first === null) return
  const lookAgain = async (afterMs: number) => {
    await client.process.sleep(afterMs)
    // A reader that does not ask whether it still may is what the guard is for.
    const second = await client.visit({ kind: 'read', fence })
    if (second !== null) checks.readTwice(fence, first, second)
  }
  await lookAgain(thinkMs)
  // Some part of it has not heard that the work is over.
  if (dice.chance(0.3) && !client.world.isStopping) void lookAgain(dice.between(0.5, 3) * settings.ttlMs)
}

// --- options -------------------------------------------------------------------------------------------------

function acquireOptions(client: Client, dice: Stream, aborted: Error): AcquireOptions {
  const waitMs = dice.pick([0, 400, 2_000, 8_000, Number.POSITIVE_INFINITY])
  return { ...holdOptions(client, dice, aborted), waitMs }
}

function holdOptions(client: Client, dice: Stream, aborted: Error): HoldOptions {
  const { ttlMs } = client.world.settings
  const abortAfterMs = dice.chance(0.15) ? dice.between(0, 3_000) : null
  const options: HoldOptions = {
    ...(dice.chance(0.1) && { ttlMs: Math.round(ttlMs * 0.7) }),
    ...howLong(dice, ttlMs),
    ...(dice.chance(0.1) && { lockDelayMs: dice.between(1, ttlMs / 2) }),
    onJeopardy: () => client.world.count('jeopardy'),
  }
  if (abortAfterMs === null) return options
  const controller = new AbortController()
  const { process, world } = client
  process.setTimer(abortAfterMs, () => {
    controller.abort(aborted)
    process.setTimer(ABORT_GRACE_MS, () => {
      if (!settled.has(aborted)) world.fail('T27', 'an acquire goes on although its caller has given up')
    })
  })
  return { ...options, signal: controller.signal }
}

/** At least, or at most: seldom either, and never both. */
function howLong(dice: Stream, ttlMs: number): HoldOptions {
  const at = dice.fraction()
  if (at < 0.06) return { maxHoldMs: dice.between(50, ttlMs) }
  return at < 0.12 ? { holdAtLeastMs: dice.between(1, 600) } : {}
}
