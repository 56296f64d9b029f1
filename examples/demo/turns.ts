/** The reports of a round, put together to turns: who held which token from when to when, and what came of it. */
import type { Entry, RoundEvent } from './events.ts'

export interface Turn {
  readonly worker: string
  readonly token: string
  readonly waitedFromMs: number
  readonly fromMs: number
  /** Missing while it lasts. */
  untilMs?: number
  stopped?: { readonly fromMs: number; untilMs?: number }
  entry?: Entry
  outcome?: 'written' | 'refused' | 'gave-up'
  /** The token that it was refused for. */
  highest?: string
}

export function turnsIn(events: readonly RoundEvent[]): Turn[] {
  const turns: Turn[] = []
  const waiting = new Map<string, number>()
  for (const event of events) {
    const { worker, atMs } = event
    const turn = turns.findLast((each) => each.worker === worker)
    if (event.kind === 'waiting') waiting.set(worker, atMs)
    if (event.kind === 'acquired')
      turns.push({ worker, token: event.token, waitedFromMs: waiting.get(worker) ?? atMs, fromMs: atMs })
    if (turn === undefined) continue
    if (event.kind === 'about-to-write') turn.entry = event.entry
    if (event.kind === 'stopped') turn.stopped = { fromMs: atMs }
    if (event.kind === 'continued' && turn.stopped) turn.stopped.untilMs = atMs
    if (event.kind === 'written' || event.kind === 'refused' || event.kind === 'gave-up')
      turn.outcome = event.kind
    if (event.kind === 'refused') turn.highest = event.highest
    if (event.kind === 'released') turn.untilMs = atMs
  }
  return turns
}

/** Who waits now, and since when. */
export function waitingIn(events: readonly RoundEvent[], worker: string): number | undefined {
  const last = events.findLast((event) => event.worker === worker)
  return last?.kind === 'waiting' ? last.atMs : undefined
}

/** The turn that was frozen, and the one that took over from it, as far as they have happened. */
export function pauseIn(turns: readonly Turn[]): { frozen?: Turn; takeOver?: Turn } {
  const frozen = turns.find(({ stopped }) => stopped !== undefined)
  if (frozen === undefined) return {}
  const takeOver = turns.find(({ token }) => BigInt(token) > BigInt(frozen.token))
  return { frozen, ...(takeOver && { takeOver }) }
}
