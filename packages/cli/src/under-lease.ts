/**
 * A command under a lease. It is stopped before the engine can give the name to another:
 *
 *   running ──`stopInMs` are left──▶ SIGTERM ──nearly nothing is left──▶ SIGKILL
 *   running ──the engine says lost──▶ SIGTERM ──`stopInMs` later──▶ SIGKILL
 *   either ──time is over──▶ SIGKILL                       this process was paused, so it is late already
 *
 * While renewals succeed, so much is never left: a lease is renewed when a third of its TTL is over, and `stopInMs` is at most a
 * third. After a SIGTERM the SIGKILL follows also if the lease is renewed meanwhile, because the command may have stopped its work
 * only in part. A grandchild of the group that outlives the command is stopped in the same way.
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
  /** The killed need a moment, and are not waited for without end. */
  let isGivenUp = false
  const kill = () => {
    child.send('SIGKILL')
    timer.cancel()
    timer = clock.setTimer(killMs, () => {
      isGivenUp = true
    })
  }
  const stop = (why: string, graceMs: number) => {
    if (!isStopped) {
      isStopped = true
      timer.cancel()
      if (graceMs > 0) timer = clock.setTimer(graceMs, kill)
      child.send('SIGTERM')
      say(`${why.replace(/\.$/, '')}; the command is stopped.`)
    }
    if (graceMs <= 0) kill()
  }
  const watch = () => {
    const leftMs = lease.remainingMs
    if (leftMs > stopInMs) timer = clock.setTimer(leftMs - stopInMs, watch)
    else
      stop(`the lease of ${JSON.stringify(lease.name)} is over in ${Math.round(leftMs)} ms`, leftMs - killMs)
  }
  let timer = clock.setTimer(0, watch)
  const onLoss = () => {
    const { message, reason } = lease.signal.reason as Error & { readonly reason?: string }
    stop(message, isTooLate(reason) ? 0 : stopInMs)
  }
  lease.signal.addEventListener('abort', onLoss, { once: true })
  const unpass = signals.pass((signal) => child.send(signal), child.hasTerminal)
  try {
    if (lease.signal.aborted) onLoss()
    const exitCode = await child.ended
    while (isStopped && !isGivenUp && child.isAlive) await pause(clock, LOOK_MS)
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
