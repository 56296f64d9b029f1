/** The options of schedules and tick runners, with their checks and defaults. */
import { quote, textOf } from '../../base/errors.ts'
import { warnAgain } from '../../base/events.ts'
import { checkName } from '../../base/names.ts'
import {
  checkCallback,
  checkFunction,
  checkInteger,
  checkKnownOptions,
  checkNumber,
  checkOneOf,
  checkSignal,
} from '../../base/options.ts'
import type { Fencing, Lease, Locker } from '../../base/types.ts'
import { checkNeeds, checkTtl, fencingUnless, type RecipeLocker, type RecipeNeed } from '../needs.ts'
import type { Rules } from './decide.ts'
import type { CronTimes } from './times.ts'

/** One scheduled time. */
export interface Tick {
  /** The name of the schedule. */
  readonly schedule: string
  /** The scheduled time in UTC, `2026-11-14T02:00:00.000Z`: the same for every replica and every start. */
  readonly id: string
  readonly scheduledAt: Date
  /** 1 for the first start; higher when an earlier start did not complete. */
  readonly start: number
}

export interface SetAsideTick extends Tick {
  /** How often it was started. */
  readonly starts: number
}

export interface TickRun<F extends Fencing = Fencing> {
  readonly tick: Tick
  readonly lease: Lease<F>
  /** Aborts when the lease is lost, or the schedule is closed. */
  readonly signal: AbortSignal
}

export type TickJob<F extends Fencing = Fencing> = (run: TickRun<F>) => unknown

export interface TickOptions {
  /** The name of the lease, and the home of the record; nothing else may use it. */
  readonly name: string
  /** `skip`, the default: no tick starts twice. `rerun`: a tick that started is started again until it has ended. */
  readonly policy?: 'skip' | 'rerun'
  /** A tick that becomes due while an earlier one runs: `skip`, the default, or `wait` until that has ended. */
  readonly overrun?: 'skip' | 'wait'
  /** With `rerun`: the most starts of a tick, which is set aside then. 3, the default: its third start is its last. */
  readonly maxStarts?: number
  /** With `rerun`: the pause after a job that threw. Default 10,000: it starts again 10 s later. */
  readonly rerunAfterMs?: number
  /** The TTL of the lease. A dead runner is noticed after it: 30,000, after half a minute. */
  readonly ttlMs?: number
  /**
   * The name stays closed for at least this long after the lease was taken, so that replicas with late clocks need not ask. At most half of
   * the time between two ticks. Default 0.
   */
  readonly holdAtLeastMs?: number
  /** Needed on a backend without fencing tokens: there nothing can refuse the writes of a runner that was paused. */
  readonly allowUnfenced?: boolean
  readonly signal?: AbortSignal
  /** Errors of the job (with its tick) and of the engine. Without it they are warnings of the process. */
  readonly onError?: (error: unknown, tick: Tick | null) => void
  /** A tick was started `maxStarts` times and has not ended. */
  readonly onSetAside?: (tick: SetAsideTick) => void
}

export interface ScheduleOptions extends TickOptions {
  /** `'0 3 * * *'`, which needs the package `croner`; or a `Cron` of croner that you have made. */
  readonly cron?: string | CronTimes
  /** The zone of a cron expression, such as `Europe/Berlin`. Default: that of the machine. */
  readonly timeZone?: string
  /** A tick at every multiple of it since 1970; at least 100. 300,000: at 12:00, 12:05, 12:10. */
  readonly everyMs?: number
  /** Ticks that no replica has started, because all were down: `skip`, the default, run the `last`, or `all` in order. */
  readonly missed?: 'skip' | 'last' | 'all'
  /** With `all`: the most missed ticks that run, the latest ones. 3, after ten hours without a replica of an hourly schedule: the last three. Default 100. */
  readonly maxMissed?: number
}

const tickOptions = [
  'name',
  'policy',
  'overrun',
  'maxStarts',
  'rerunAfterMs',
  'ttlMs',
  'holdAtLeastMs',
  'allowUnfenced',
  'signal',
  'onError',
  'onSetAside',
]
const scheduleOptions = [...tickOptions, 'cron', 'timeZone', 'everyMs', 'missed', 'maxMissed']

/** The options with their defaults. */
export interface Terms extends Pick<TickOptions, 'signal' | 'onSetAside'> {
  readonly name: string
  readonly rules: Rules
  readonly rerunAfterMs: number
  readonly hold: { readonly ttlMs?: number; readonly holdAtLeastMs?: number }
  /** One replica waits for the lease. */
  readonly standsBy: boolean
  readonly onError: NonNullable<TickOptions['onError']>
}

export function checkTerms<F extends Fencing>(
  locker: Locker<F>,
  options: ScheduleOptions | TickOptions,
  job: unknown,
  kind: 'schedule' | 'tickRunner',
): Terms {
  checkNeeds(kind, locker, [])
  checkKnownOptions('options', options ?? null, kind === 'schedule' ? scheduleOptions : tickOptions)
  checkFunction('job', job)
  const { policy = 'skip', overrun = 'skip', maxStarts = 3, rerunAfterMs = 10_000 } = options
  const { missed = 'skip', maxMissed = 100 }: Partial<ScheduleOptions> = options
  const { ttlMs, holdAtLeastMs = 0, allowUnfenced, signal, onError, onSetAside } = options
  const name = checkName(options.name)
  const rules: Rules = {
    policy: checkOneOf('policy', policy, ['skip', 'rerun']),
    overrun: checkOneOf('overrun', overrun, ['skip', 'wait']),
    missed: checkOneOf('missed', missed, ['skip', 'last', 'all']),
    maxStarts: checkInteger('maxStarts', maxStarts, { min: 1, max: 1_000 }),
    maxMissed: checkInteger('maxMissed', maxMissed, { min: 1, max: 10_000 }),
  }
  checkNumber('rerunAfterMs', rerunAfterMs, { min: 0 })
  checkNumber('holdAtLeastMs', holdAtLeastMs, { min: 0 })
  checkTtl(locker, ttlMs)
  checkSignal(signal)
  checkCallback('onError', onError)
  checkCallback('onSetAside', onSetAside)
  const standsBy = policy === 'rerun' || overrun === 'wait' || missed === 'all'
  const needs: RecipeNeed[] = ['data', ...fencingUnless(allowUnfenced)]
  if (holdAtLeastMs > 0) needs.push('holdAtLeast')
  if (standsBy) needs.push('queue')
  checkNeeds(kind, locker, needs)
  return {
    name,
    rules,
    rerunAfterMs,
    standsBy,
    hold: { ...(ttlMs !== undefined && { ttlMs }), ...(holdAtLeastMs > 0 && { holdAtLeastMs }) },
    onError: onError ?? ((error, tick) => tellFailure(locker, name, error, tick)),
    ...(signal !== undefined && { signal }),
    ...(onSetAside !== undefined && { onSetAside }),
  }
}

function tellFailure({ info }: RecipeLocker, name: string, error: unknown, tick: Tick | null): void {
  const { name: backend, namespace } = info
  const warning = `schedule ${quote(name)}${tick === null ? '' : `, tick ${tick.id}`}: ${textOf(error)}`
  const stack = error instanceof Error ? error.stack : undefined
  warnAgain({ backend, namespace, code: 'HOLDFAST_SCHEDULE', warning }, stack)
}
