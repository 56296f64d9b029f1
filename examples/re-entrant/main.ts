/**
 * A function that locks an account calls another one that locks the same account.
 *
 *     node examples/re-entrant/main.ts
 */
import { createLocker, isHoldfastError, type Locker } from 'holdfast'
import { memoryGuard } from 'holdfast/guards/memory'
import { memory } from 'holdfast/memory'
import { reentrant } from 'holdfast/recipes/reentrant'
import { limitTime, startClaims } from '../support/claims.ts'

const { say, check, mustLose, finish } = startClaims()
limitTime()

await using plain = createLocker(memory(), { waitMs: 200 })
const account = 'account/7'

/** Both are called from elsewhere as well, so each of them locks. */
function bank(locker: Locker<'fenced'>) {
  const guard = memoryGuard()
  const tokens: bigint[] = []
  let cents = 10_000
  const book = (amount: number, why: string) =>
    locker.withLease(account, (lease) =>
      guard.run(lease, () => {
        tokens.push(lease.fence.token)
        cents += amount
        return `${why}: ${amount}`
      }),
    )
  const withdraw = (amount: number) =>
    locker.withLease(account, async () => {
      if (cents < amount) throw new Error('not enough money')
      await book(-amount, 'withdrawal')
      await book(-50, 'fee')
    })
  return { withdraw, tokens, balance: () => cents }
}

say('Without re-entrancy the second lock waits for the first, which waits for the second.')
const stuck = await bank(plain)
  .withdraw(1_000)
  .catch((error: unknown) => error)
mustLose(
  'the withdrawal waits for itself',
  isHoldfastError(stuck, 'ACQUIRE_TIMEOUT') && stuck.heldByThisLocker,
)

say('\nWith it, the inner calls enter the lease of the outer one.')
const { withdraw, tokens, balance } = bank(reentrant(plain))
await withdraw(1_000)
check('withdrawal and fee are booked', balance() === 8_950)
check('both under one token, so the guard takes them for one holder', new Set(tokens).size === 1)
check('the account is free afterwards', (await plain.inspect(account)) === null)

say('\nTwenty withdrawals at once, each a task of its own.')
const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => withdraw(1_000)))
const paid = outcomes.filter(({ status }) => status === 'fulfilled').length
check(`${paid} of them were paid, and the account is not overdrawn`, paid === 8 && balance() === 550)
check('each had a token of its own', new Set(tokens).size === 1 + paid)
finish()
