/**
 * Two transfers in opposite directions: a warning before anything happens, the deadlock itself, and the way out.
 *
 *     node examples/lock-order/main.ts
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocker, type HoldfastEvents, isHoldfastError, onEvent } from 'holdfast'
import { memory } from 'holdfast/memory'
import { findDeadlocks, watchLockOrder } from 'holdfast/recipes/lock-order'
import { limitTime, startClaims } from '../support/claims.ts'

const { say, check, mustLose, finish } = startClaims()
limitTime()

await using locker = watchLockOrder(createLocker(memory(), { waitMs: 1_000 }))
const told: HoldfastEvents['lock-order'][] = []
onEvent('lock-order', (event) => told.push(event))

/** `meeting`: both have their first lock before one of them asks for its second. */
const transfer = (owner: string, from: string, to: string, meeting?: () => Promise<void>) =>
  locker.withLease(from, { owner }, async () => {
    await meeting?.()
    await locker.withLease(to, { owner }, () => {})
  })

say('On a calm day both transfers work, one after the other.')
await transfer('request-1', 'account/1', 'account/2')
await transfer('request-2', 'account/2', 'account/1')
await transfer('request-3', 'account/2', 'account/1')
check('one warning tells that they can deadlock', told.length === 1)
for (const { held, heldAt, asked, askedAt } of told[0]?.orders ?? []) {
  say(`    holds ${held} (${placeOf(heldAt)})\n      and asks for ${asked} (${placeOf(askedAt)})`)
}
const sites = told[0]?.orders.flatMap(({ heldAt, askedAt }) => [heldAt, askedAt]) ?? []
check(
  'with four call sites in this file',
  sites.length === 4 && sites.every((site) => site.includes('main.ts')),
)

say('\nOn a busy day they meet.')
let arrived = 0
const { promise: bothHere, resolve } = Promise.withResolvers<void>()
const meeting = async () => {
  if (++arrived === 2) resolve()
  await bothHere
}
const running = [
  transfer('request-4', 'account/1', 'account/2', meeting),
  transfer('request-5', 'account/2', 'account/1', meeting),
].map((each) => each.catch((error: unknown) => error))
let deadlocks = findDeadlocks(await locker.list('account/'))
while (deadlocks.length === 0) {
  await sleep(10)
  deadlocks = findDeadlocks(await locker.list('account/'))
}
const stuck = deadlocks[0]?.tasks ?? []
for (const { owner, waitsFor } of stuck) say(`    ${owner} waits for ${waitsFor}`)
check(
  'findDeadlocks names both',
  stuck
    .map(({ owner }) => owner)
    .sort()
    .join() === 'request-4,request-5',
)
const outcomes = await Promise.all(running)
mustLose(
  'at least one of them waits until its time is over',
  outcomes.some((error) => isHoldfastError(error, 'ACQUIRE_TIMEOUT')),
)

say('\nThe way out: take both at once. acquireAll locks them in one order.')
const inOrder = async (from: string, to: string) => {
  await using both = await locker.acquireAll([from, to])
  return both.fences.length
}
const calm = await Promise.all([inOrder('account/3', 'account/4'), inOrder('account/4', 'account/3')])
check('both work, and there is no further warning', calm.join() === '2,2' && told.length === 1)
finish()

function placeOf(site: string): string {
  return site.replace(/^.*\//, '')
}
