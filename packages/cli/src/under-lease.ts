/**
 * A command under a lease. It is stopped before the engine can give the name to another:
 *
 *   running ──`stopInMs` are left──▶ SIGTERM ──nearly nothing is left──▶ SIGKILL
 *   running ──time is over──▶ SIGKILL                       this process was paused, so it is late already
 *   running ──the engine says lost──▶ SIGTERM ──`stopInMs` later──▶ SIGKILL
 *
 * While renewals succeed, so much is never left: a lease is renewed when a third of its TTL is over, and `stopInMs` is at most a
 * third. A grandchild of the group that outlives the command is stopped in the same way.
 */
import type { Clock, LeaseBase } from 'holdfast'
import { Child } from './child.ts'
import { EXIT } from './exits.ts'
import { pause } from './pause.ts'
import type { Signals } from './signals.ts'
import { say } from './terminal.ts'

export interface Stopping {
  readonly clock: Clock
  readonly stopInMs: number
  readonly signals: Signals
}

export interface CommandEnd {
  readonly exitCode: number
  /** It was stopped because of its lease. */
  readonly isStopped: boolean
}

/** The process is dead soon after a SIGKILL, and not at once. */
const KILL_SHARE = 4
const KILL_MS = 500
const LOOK_MS = 20

export async function runUnderLease(
  lease: LeaseBase,
  command: readonly string[],
  env: NodeJS.ProcessEnv,
  { clock, stopInMs, signals }: Stopping,
): Promise<CommandEnd> {
  // From here to `pass` is one turn, so no signal comes in between.
  signals.cancelled.throwIfAborted()
  const killMs = Math.min(KILL_MS, stopInMs / KILL_SHARE)
  if (lease.remainingMs <= killMs) {
    say(`the lease of ${JSON.stringify(lease.name)} was over before the command was started.`)
    return { exitCode: EXIT.lost, isStopped: true }
  }
  const child = new Child(command, env)
  let isStopped = false
  let isKilled = false
  const stop = (why: string) => {
    if (isStopped) return
    isStopped = true
    say(`${why}; the command is stopped.`)
    child.send('SIGTERM')
  }
  const kill = (why: string) => {
    stop(why)
    isKilled = true
    child.send('SIGKILL')
  }
  const watch = () => {
    const leftMs = lease.remainingMs
    const why = `the lease of ${JSON.stringify(lease.name)} is over in ${Math.round(leftMs)} ms and not renewed`
    if (leftMs <= killMs) return kill(why)
    if (leftMs <= stopInMs) stop(why)
    timer = clock.setTimer(leftMs - (leftMs <= stopInMs ? killMs : stopInMs), watch)
  }
  let timer = clock.setTimer(0, watch)
  const onLoss = () => {
    timer.cancel()
    const { message, reason } = lease.signal.reason as Error & { readonly reason?: string }
    if (isTooLate(reason)) return kill(message)
    stop(message)
    timer = clock.setTimer(stopInMs, () => kill(message))
  }
  lease.signal.addEventListener('abort', onLoss, { once: true })
  const unpass = signals.pass((signal) => child.send(signal), child.hasTerminal)
  try {
    if (lease.signal.aborted) onLoss()
    const exitCode = await child.ended
    while (isStopped && !isKilled && child.isAlive) await pause(clock, LOOK_MS)
    return { exitCode: isStopped ? EXIT.lost : exitCode, isStopped }
  } finally {
    unpass()
    child.done()
    timer.cancel()
    lease.signal.removeEventListener('abort', onLoss)
  }
}

/** Its time was over before this process noticed. Else the engine has told of the loss. */
function isTooLate(reason: string | undefined): boolean {
  return reason === 'expired' || reason === 'unreachable' || reason === 'max-hold'
}
