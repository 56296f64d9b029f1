/**
 * Tokens strictly increase for the whole file (G2), through every crash.
 *
 * A token is drawn in the transaction of its grant (T37, tokens drawn apart), from a counter in the file. A commit survives the end of a
 * process, but without waiting for the disk it need not survive a power failure, which would put the counter back
 * after the tokens have been seen (T68, tokens lost in a crash). So tokens are given out only below a mark that was raised beforehand by a
 * commit that did wait for the disk; after a restart of the machine the counter goes on at that mark.
 *
 *   crash after raising the mark         a part of the block is never used
 *   crash after the grant's commit       the token was drawn with it, or neither was
 *   power failure                        the counter may be old; the mark is not, and counting goes on there
 *   power failure before the new mark    the boot id in the file is still the old one: the jump is made again
 */
import type { Database } from './database.ts'
import type { Statements } from './statements.ts'
import type { Transaction } from './transaction.ts'

/**
 * How many tokens one wait for the disk is good for. At 20,000 grants a second that is one wait in three seconds;
 * a restart of the machine skips at most as many, of 2^52.
 */
export const TOKENS_PER_RESERVATION = 65_536

/** Thrown inside a transaction, which is then undone and repeated after a reservation. */
export class TokensUsedUp extends Error {}

/** The counter, read once in a transaction and written back once. */
export interface TokenCounter {
  next: number
  readonly reserved: number
}

export function drawToken(tx: Pick<Transaction, 'sql' | 'tokens'>): bigint {
  tx.tokens ??= tx.sql.readTokens.first()
  if (tx.tokens === undefined || tx.tokens.next >= tx.tokens.reserved) throw new TokensUsedUp()
  return BigInt(tx.tokens.next++)
}

/** False: busy. Afterwards there are tokens, unless other processes were very quick. */
export function reserveTokens(database: Database, sql: Statements): boolean {
  return database.durably(() => {
    if (!database.begin()) return false
    try {
      sql.reserveTokens.run(TOKENS_PER_RESERVATION)
      database.commit()
    } catch (error) {
      database.rollBack()
      throw error
    }
    database.statistics.reservations++
    return true
  })
}
