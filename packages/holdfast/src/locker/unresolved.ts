/**
 * Claims that the engine may or may not have: an acquire or a release whose answer was lost. Each is
 * abandoned again and again until the engine has answered; only then is it certain that it can never land. After one
 * TTL without an answer the whole session is given up, because a claim that is neither known nor resolved would be
 * held for as long as the session lives.
 *
 *   unknown ──abandon answered──▶ resolved
 *   unknown ──one TTL without an answer──▶ hopeless: the session ends, and the claim with it
 */

import { pause } from '../base/clock.ts'
import { growingPauseMs } from '../base/pauses.ts'
import type { Fencing } from '../spi.ts'
import { callEngine } from './call.ts'
import type { LockerContext } from './context.ts'
import type { KeptSession } from './keeper.ts'
import type { Leftover } from './session-attempts.ts'

const FIRST_PAUSE_MS = 20

/** Resolves when the engine has answered, or the session has ended. */
export async function abandonUntilAnswered<F extends Fencing>(
  context: LockerContext,
  session: KeptSession<F>,
  { claim, closedUntilMs }: Leftover,
): Promise<void> {
  const { clock, random } = context
  const { engineSession, ended: stop } = session
  const startedMs = clock.monotonicMs()
  for (let failures = 0; !stop.cancelled; failures++) {
    try {
      const limits = { what: `abandon of "${claim.name}"`, timeoutMs: session.callLimitMs, stop }
      const keepForMs = closedUntilMs - clock.monotonicMs()
      if (keepForMs > 0 && 'grantId' in claim)
        await callEngine(context, limits, (call) => engineSession.release(claim, { keepForMs }, call))
      await callEngine(context, limits, (call) => engineSession.abandon(claim, call))
      return
    } catch {
      const { ttlMs } = session
      if (clock.monotonicMs() - startedMs >= ttlMs) session.end('unreachable')
      else {
        const ms = growingPauseMs(failures, { firstMs: FIRST_PAUSE_MS, longestMs: ttlMs / 3 })
        await pause(clock, ms * (0.5 + random.fraction() / 2), { signal: stop.signal })
      }
    }
  }
}
