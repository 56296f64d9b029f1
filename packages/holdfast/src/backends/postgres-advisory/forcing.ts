/**
 * Taking a lock away from its holder. Only the session that has it can give it up, and nothing else of what it has: so it
 * is asked to, and has a moment for it. Who does not react loses its connection, and with it all that it holds there.
 *
 * What may go wrong between looking and ending: the holder releases, and another gets the name. Both are told apart by
 * the id of the attempt, so the successor is not touched (T74).
 */

import { sleep } from '../../base/clock.ts'
import { BackendUnavailableError, quote } from '../../base/errors.ts'
import { arrayLiteral } from '../../clients/postgres/index.ts'
import { cancelledCall, operatorCallExpired } from '../../kit/backend-kit.ts'
import type { OperatorCall } from '../../spi.ts'
import { type Links, NAME } from './links.ts'
import type { ShownRow } from './looking.ts'

const PATIENCE_MS = 2_000
const FIRST_PAUSE_MS = 2
const LONGEST_PAUSE_MS = 50
const END_WITHIN_MS = 5_000

export async function forceRelease(
  links: Links,
  name: string,
  wanted: readonly string[],
  reason: string,
  { signal, notAfterMs }: OperatorCall,
): Promise<number> {
  const { sql, namespace, clock } = links
  const rows = (await links.query(sql.show, [namespace, name], signal)) as readonly ShownRow[]
  const targets = rows.filter(([kind, , id]) => kind === 'holder' && wanted.includes(id))
  if (targets.length === 0) return 0
  const ids = arrayLiteral(targets.map((row) => row[2]))
  const sessions = arrayLiteral(targets.map((row) => row[9]))
  const [marked] = await links.query(sql.force, [sessions, ids, notAfterMs, reason], signal)
  if (Number(marked?.[0]) === 0) throw operatorCallExpired(NAME)
  const startedMs = clock.monotonicMs()
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2)) {
    const left = await links.query(sql.left, [ids], signal)
    if (left.length === 0) return targets.length
    if (clock.monotonicMs() - startedMs >= PATIENCE_MS) {
      await endConnections(
        links,
        name,
        left.map((row) => String(row[1])),
        signal,
      )
      return targets.length
    }
    await sleep(clock, pauseMs, { signal, keepsProcessAlive: true }).catch(() => {
      throw cancelledCall(NAME, signal, 'unknown')
    })
  }
}

async function endConnections(
  links: Links,
  name: string,
  conns: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const [row] = await links.query(links.sql.end, [arrayLiteral(conns), END_WITHIN_MS], signal)
  if (row?.[0] !== true)
    throw new BackendUnavailableError(
      NAME,
      `force release of ${quote(name)}: the holder does not react, and its connection could not be ended`,
      'unknown',
    )
}
