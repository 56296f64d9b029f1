import { setTimeout as sleep } from 'node:timers/promises'

/** Enough for a machine that has much else to do; nothing waits this long when all is well. */
const patienceMs = 60_000

export interface Patience {
  readonly withinMs?: number
  readonly everyMs?: number
}

/**
 * Asks again and again until the answer is neither `false` nor `null`. An error counts as "not yet", and is the cause of
 * the failure if it was the last answer.
 */
export async function waitFor<T>(
  what: string,
  probe: () => Promise<T | false | null>,
  { withinMs = patienceMs, everyMs = 20 }: Patience = {},
): Promise<T> {
  const started = performance.now()
  for (;;) {
    let problem: unknown
    try {
      const answer = await probe()
      if (answer !== false && answer !== null) return answer
    } catch (error) {
      if (error instanceof GivenUp) throw error
      problem = error
    }
    if (performance.now() - started > withinMs) {
      throw new Error(`waited ${withinMs} ms in vain for ${what}`, { cause: problem })
    }
    await sleep(everyMs)
  }
}

/** Thrown by a probe that knows that asking again is pointless. */
export class GivenUp extends Error {}
