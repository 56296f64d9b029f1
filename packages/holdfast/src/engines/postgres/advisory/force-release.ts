/**
 * Taking a lock away from its holder. Only the session that has an advisory lock can free it, so the operator marks the
 * holder's record and sends a notification; the session frees that lock and no other. A session that does not react loses
 * its connection, and with it all of its locks.
 *
 * The mark names one grant, by its connection and token. So neither a successor (T74, misaimed force releases) nor a later grant (T78, late operators) is touched. A
 * notification alone does nothing: the session looks for a mark, and it also looks at every keep-alive.
 */

import { sleep } from '../../../base/clock.ts'
import { BackendUnavailableError, quote } from '../../../base/errors.ts'
import { growingPauseMs } from '../../../base/pauses.ts'
import { cancelledCall, operatorCallExpired } from '../../../kit/backend-kit.ts'
import type { OperatorCall } from '../../../spi.ts'
import { arrayLiteral } from '../client/index.ts'
import { type Connection, NAME } from './connection.ts'
import { seenHolders } from './states.ts'

const PATIENCE_MS = 2_000
const PAUSES = { firstMs: 2, longestMs: 50 }
const END_WITHIN_MS = 5_000

/** Ends the holders of `name` with these public ids, and returns how many. */
export async function forceRelease(
  connection: Connection,
  name: string,
  ids: readonly string[],
  reason: string,
  call: OperatorCall,
): Promise<number> {
  const { sql, clock } = connection
  const seen = (await seenHolders(connection, name, call)).filter(({ id }) => ids.includes(id))
  if (seen.length === 0) return 0
  const conns = arrayLiteral(seen.map(({ conn }) => conn))
  const tokens = arrayLiteral(seen.map(({ token }) => token))
  const [row] = await connection.query(sql.force, [conns, tokens, call.notAfterMs, reason], call)
  if (row?.[0] === 'late') throw operatorCallExpired(NAME)
  const marked = Number(row?.[1])
  const startedMs = clock.monotonicMs()
  for (let looks = 0; ; looks++) {
    const left = (await seenHolders(connection, name, call)).filter(({ token }) =>
      seen.some((holder) => holder.token === token),
    )
    if (left.length === 0) return marked
    if (clock.monotonicMs() - startedMs >= PATIENCE_MS) {
      const holding = arrayLiteral(left.map(({ conn }) => conn))
      const [ended] = await connection.query(sql.end, [holding, END_WITHIN_MS, tokens], call)
      if (ended?.[0] === true) return marked
      const what = `force release of ${quote(name)}: the holder does not react, and its connection could not be ended`
      throw new BackendUnavailableError(NAME, what, 'unknown')
    }
    await sleep(clock, growingPauseMs(looks, PAUSES), { signal: call.signal, keepsProcessAlive: true }).catch(
      () => {
        throw cancelledCall(NAME, call.signal, 'unknown')
      },
    )
  }
}
