/**
 * Tokens strictly increase for the whole file (G2), through every crash.
 *
 * A token is drawn in the transaction of its grant (T37), from a counter in the file. A commit survives the end of a
 * process, but without waiting for the disk it need not survive a power failure, which would put the counter back
 * after the tokens have been seen (T68). So tokens are given out only below a mark that was raised beforehand by a
 * commit that did wait for the disk; after a restart of the machine the counter goes on at that mark.
 *
 *   crash after raising the mark         a part of the block is never used
 *   crash after the grant's commit       the token was drawn with it, or neither was
 *   power failure                        the counter may be old; the mark is not, and counting goes on there
 *   power failure before the new mark    the boot id in the file is still the old one: the jump is made again
 */
import type { Database } from './database.ts'
import type { Statements } from './statements.ts'

/**
 * How many tokens one wait for the disk is good for. At 20,000 grants a second that is one wait in three seconds;
 * a restart of the machine skips at most as many, of 2^52.
 */
export const TOKENS_PER_RESERVATION = 65_536

/** Thrown inside a transaction, which is then undone and repeated after a reservation. */
export class TokensUsedUp extends Error {}

/** The counter, within one transaction: read at the first draw, written back once before the commit. */
export class TokenCounter {
  readonly #sql: Statements
  #next: bigint | undefined
  #reserved = 0n
  #drawn = false

  constructor(sql: Statements) {
    this.#sql = sql
  }

  /** Saves a statement where the counter was read in this transaction for another reason. */
  know(next: number, reserved: number): void {
    // Once something was drawn, the file is behind.
    if (this.#next !== undefined) return
    this.#next = BigInt(next)
    this.#reserved = BigInt(reserved)
  }

  draw(): bigint {
    if (this.#next === undefined) this.#read()
    if (this.#next === undefined || this.#next >= this.#reserved) throw new TokensUsedUp()
    this.#drawn = true
    return this.#next++
  }

  #read(): void {
    const found = this.#sql.readTokens.first()
    if (found === undefined) throw new Error('the file has lost its count of tokens')
    this.#next = found.next
    this.#reserved = found.reserved
  }

  writeBack(): void {
    if (this.#drawn && this.#next !== undefined) this.#sql.writeNextToken.run(this.#next)
  }
}

/** False: busy. Afterwards there are tokens, unless others were very quick. */
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
