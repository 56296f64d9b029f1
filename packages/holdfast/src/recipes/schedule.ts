/**
 * Schedules: a job runs at certain times, on one of many replicas.
 *
 *     const nightly = await schedule(locker, { name: 'report', cron: '0 3 * * *', timeZone: 'Europe/Berlin' }, job)
 *
 * A tick is a scheduled time. For each tick every replica does this; the record is in the data cell of the name:
 *
 *   1. take the lease of the name           busy: another replica runs it. Leave; or, as the only one, stand by (maxWaiters: 1)
 *   2. read the record, decide              started before: leave, or start again (`rerun`), or set aside
 *   3. write "tick T, start n, token"       under the engine's ownership check
 *   4. run the job
 *   5. write "tick T done" (or failed)
 *   6. release                              the stand-by is granted, and continues at 2
 *
 * One lease starts one tick once. So a copy of a write that arrives late cannot bring back an earlier tick; at worst a tick that is
 * done is unfinished again, and `rerun` starts it once more.
 *
 * Failures between the steps, with `skip` (no tick starts twice) and `rerun` (each started tick ends):
 *
 *   1–2  crash or pause: nothing has started. The lease ends with its time; a replica whose clock is late, or the stand-by,
 *        starts the tick. If there is none, it is missed.
 *   3    no answer: it may be stored or not, so the job does not run. `skip`: the replica asks again; if it was stored, the tick
 *        is used up without having run. `rerun`: if it was stored, that start counts and the tick is started again.
 *   3    the answer comes after the lease's time: as above, the job does not run.
 *   3–4  crash, pause: the tick counts as started. `skip`: used up. `rerun`: the stand-by starts it again.
 *   4    the lease is lost (engine cut off, process paused): the job's signal aborts, and its fence is refused once another
 *        start has been at the guard. The job may still run when `rerun` starts it elsewhere.
 *   4–5  crash after the job's effect: `rerun` starts a tick again whose effect is there. See `idempotent` in docs/lockfree.md.
 *   5    no answer: written again while the lease is held, so only a lost lease or a crash leads to another start.
 *   5–6  crash: the lease ends with its time, and the next holder reads "done".
 *
 * A tick that becomes due while a job runs is an overrun, and the record says from when to when jobs ran. That time begins under the
 * lease: ticks that became due while a replica waited for the lease, because the engine was away or its holder dead, were missed
 * (T97, falsely overrun ticks). The end of a run that is not in the record is not known: what became due since counts as missed.
 *
 * If runner and stand-by both die, the next tick, or the next replica that starts, finds the record unfinished.
 * A clock that is late finds its tick in the record. A clock that is early starts a tick early, once.
 */
import { sleep } from '../base/clock.ts'
import { InvalidArgumentError } from '../base/errors.ts'
import type { TickOutcome } from '../base/events.ts'
import type { Fencing, Locker } from '../base/types.ts'
import { checkTerms, type ScheduleOptions, type TickJob, type TickOptions } from './schedule/options.ts'
import { Runner } from './schedule/runner.ts'
import { checkHold, isTickTime, latestTick, type NextTick, timesOf } from './schedule/times.ts'

export type { TickOutcome } from '../base/events.ts'
export {
  type CronerJob,
  type CronJobLike,
  type NodeCronContext,
  tickOfCroner,
  tickOfCronJob,
  tickOfNodeCron,
} from './schedule/adapters.ts'
export type {
  ScheduleOptions,
  SetAsideTick,
  Tick,
  TickJob,
  TickOptions,
  TickRun,
} from './schedule/options.ts'
export type { CronTimes } from './schedule/times.ts'

export interface Schedule extends AsyncDisposable {
  /**
   * Plans nothing more, aborts the signal of a job that runs here, waits for it, and only then gives the lease up (T53, early releases).
   * The job must not wait for it.
   */
  close(): Promise<void>
}

export interface TickRunner extends AsyncDisposable {
  /** For a scheduler of your own: runs the job for this scheduled time, unless another replica does or did. Never rejects because of the engine or the job. */
  run(scheduledAt: Date | number): Promise<TickOutcome>
  /** As `close` of a schedule. */
  close(): Promise<void>
}

/** Runs `job` at each scheduled time on one replica. The first ticks are those after the call; `missed` and `rerun` also look back. */
export function schedule(
  locker: Locker<'fenced'>,
  options: ScheduleOptions,
  job: TickJob<'fenced'>,
): Promise<Schedule>
export function schedule<F extends Fencing>(
  locker: Locker<F>,
  options: ScheduleOptions & { readonly allowUnfenced: true },
  job: TickJob<F>,
): Promise<Schedule>
export async function schedule<F extends Fencing>(
  locker: Locker<F>,
  options: ScheduleOptions,
  job: TickJob<F>,
): Promise<Schedule> {
  const terms = checkTerms(locker, options, job, 'schedule')
  const nowMs = locker.clock.wallMs()
  const next = await timesOf(options, nowMs)
  checkHold(terms.hold.holdAtLeastMs ?? 0, next, nowMs)
  const runner = new Runner(locker, terms, job)
  const looksBack = terms.rules.policy === 'rerun' || terms.rules.missed !== 'skip'
  const planning = plan(locker, runner, next, looksBack).catch((error) => {
    if (!runner.stopped.aborted) runner.report(error, null)
  })
  const close = async () => {
    await runner.close()
    await planning
  }
  return { close, [Symbol.asyncDispose]: close }
}

/** The same for ticks that another scheduler calls for: node-cron, croner, `@nestjs/schedule`. */
export function tickRunner(locker: Locker<'fenced'>, options: TickOptions, job: TickJob<'fenced'>): TickRunner
export function tickRunner<F extends Fencing>(
  locker: Locker<F>,
  options: TickOptions & { readonly allowUnfenced: true },
  job: TickJob<F>,
): TickRunner
export function tickRunner<F extends Fencing>(
  locker: Locker<F>,
  options: TickOptions,
  job: TickJob<F>,
): TickRunner {
  const runner = new Runner(locker, checkTerms(locker, options, job, 'tickRunner'), job)
  let latest = Number.NEGATIVE_INFINITY
  return {
    run(scheduledAt) {
      const tick = typeof scheduledAt === 'number' ? scheduledAt : scheduledAt?.getTime?.()
      if (!isTickTime(tick))
        throw new InvalidArgumentError('scheduledAt', 'must be a date, or milliseconds since 1970.')
      latest = Math.max(latest, tick)
      // While the engine does not answer, a newer tick takes the place of this one; and one that stands by looks for the newest.
      return runner.attempt(
        () => ({ tick: latest, isOnTime: true }),
        () => tick === latest,
      )
    },
    close: () => runner.close(),
    [Symbol.asyncDispose]: () => runner.close(),
  }
}

/** A change of the wall clock is noticed after this long. */
const LONGEST_SLEEP_MS = 60_000

/** One tick after the other. Of several that became due meanwhile the latest is asked for; the record shows which were missed. */
async function plan<F extends Fencing>(
  { clock }: Locker<F>,
  runner: Runner<F>,
  next: NextTick,
  looksBack: boolean,
): Promise<void> {
  const { stopped } = runner
  let after = clock.wallMs()
  if (looksBack) {
    const tick = latestTick(next, after) ?? 0
    await runner.lookBack(() => ({ tick, isOnTime: false, next }))
  }
  while (!stopped.aborted) {
    const nowMs = clock.wallMs()
    // The clock was set back. What has started stands in the record.
    if (nowMs < after - LONGEST_SLEEP_MS) after = nowMs
    const due = next(after)
    if (due === null) return
    if (due > nowMs) {
      // A sleep of less than the clock can show would be followed by the same sleep, and so on.
      const sleepMs = Math.min(Math.ceil(due - nowMs), LONGEST_SLEEP_MS)
      await sleep(clock, sleepMs, { signal: stopped, keepsProcessAlive: true })
    } else {
      const latest = () => {
        after = latestTick(next, clock.wallMs(), after) ?? after
        return { tick: after, isOnTime: true, next }
      }
      // It moves `after` on, even if the lease is not granted and `latest` is not called under it.
      latest()
      await runner.attempt(latest)
    }
  }
}
