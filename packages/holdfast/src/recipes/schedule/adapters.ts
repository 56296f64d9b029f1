/** Finds the tick that the user's scheduler has called for. Structural types: no scheduler is a dependency. */
import { dateOf } from '../../base/clock.ts'
import { InvalidArgumentError } from '../../base/errors.ts'
import { latestTick, type NextTick } from './times.ts'

/** The context that node-cron hands to a task. */
export interface NodeCronContext {
  readonly date: Date
}

/** A `Cron` of croner, which it hands to its function. */
export interface CronerJob {
  currentRun(): Date | null
  nextRun(after: Date): Date | null
}

/** A `CronJob` of the package cron, as `SchedulerRegistry` of `@nestjs/schedule` returns it. */
export interface CronJobLike {
  lastDate(): Date | null
  readonly cronTime: {
    readonly timeZone?: string | undefined
    getNextDateFrom(start: Date, timeZone?: string): { toMillis(): number }
  }
}

/** `cron.schedule('0 3 * * *', (context) => ticks.run(tickOfNodeCron(context)))` */
export function tickOfNodeCron(context: NodeCronContext): Date {
  return context.date
}

/** `new Cron('0 3 * * *', async (job) => { await ticks.run(tickOfCroner(job)) })` */
export function tickOfCroner(job: CronerJob): Date {
  return latestBy(job.currentRun(), (afterMs) => job.nextRun(dateOf(afterMs))?.getTime() ?? null)
}

/** For a method with `@Cron('0 3 * * *', { name: 'report' })`: `ticks.run(tickOfCronJob(registry.getCronJob('report')))` */
export function tickOfCronJob(job: CronJobLike): Date {
  const { cronTime } = job
  return latestBy(job.lastDate(), (afterMs) =>
    cronTime.getNextDateFrom(dateOf(afterMs), cronTime.timeZone).toMillis(),
  )
}

/** These schedulers tell when they fired, which is a little after the scheduled time. */
function latestBy(firedAt: Date | null, next: NextTick): Date {
  const tick = firedAt === null ? null : latestTick(next, firedAt.getTime())
  if (tick === null) throw new InvalidArgumentError('job', 'has not fired, so it has called for no tick.')
  return dateOf(tick)
}
