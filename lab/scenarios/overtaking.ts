/**
 * The plot of most scenarios: `first` has read under its lease; something happens; `second` gets the name and
 * takes a whole turn; `first` goes on, and writes what it had read before. Driven by what the clients report, not by how
 * long something takes.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { nowMs } from './observer.ts'
import type { Stage } from './scenario.ts'

export const overtaken = 'first'
export const overtaker = 'second'

export interface PassOptions {
  /** How long a run takes at least: it is done again and again. Default: once. */
  readonly seconds?: number
  readonly ttlMs?: number
}

export interface Misfortune {
  /** Before anybody has a turn. */
  prepare?(): Promise<void>
  /** When `first` has read. From then on, or after one TTL, `second` can get the name. */
  strike(): Promise<void>
  /** It strikes again while `second` is not done: a vote for `first` may have come to a server after the last strike. */
  readonly everyMs?: number
  /** When `second` is done. */
  relieve?(): Promise<void>
}

export async function overtakeRepeatedly(
  { crew, say }: Stage,
  seconds: number,
  misfortune: Misfortune,
): Promise<void> {
  await repeat(seconds, async (number) => {
    await misfortune.prepare?.()
    await crew.ask(overtaken, { kind: 'turn', entry: `${overtaken} ${number}`, thinkMs: null }, 'read')
    await misfortune.strike()
    const turn = { kind: 'turn', entry: `${overtaker} ${number}`, thinkMs: 0 } as const
    const isDone = crew.ask(overtaker, turn, 'done').then(() => true)
    const { everyMs } = misfortune
    while (!(await Promise.race([isDone, ...(everyMs ? [sleep(everyMs, false)] : [])])))
      await misfortune.strike()
    say(`${number}: ${overtaker} is done; ${overtaken} goes on`)
    const late = crew.next(overtaken, 'done')
    crew.order(overtaken, { kind: 'go' })
    await misfortune.relieve?.()
    await late
  })
}

export async function repeat(seconds: number, once: (number: number) => Promise<void>): Promise<void> {
  const endMs = nowMs() + seconds * 1_000
  for (let number = 1; number === 1 || nowMs() < endMs; number++) await once(number)
}
