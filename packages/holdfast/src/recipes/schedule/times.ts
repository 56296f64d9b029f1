/** When ticks are due: at multiples of `everyMs` since 1970, or when a cron expression says so. All replicas compute the same. */
import { dateOf } from '../../base/clock.ts'
import { InvalidArgumentError, isHoldfastError, quote, UnsupportedError } from '../../base/errors.ts'
import { loadPeer } from '../../base/load-peer.ts'
import { checkText } from '../../base/names.ts'
import { checkInteger } from '../../base/options.ts'
import type { ScheduleOptions } from './options.ts'

/** A `Cron` of croner; any object that knows the next time after another will do. */
export interface CronTimes {
  nextRun(after: Date): Date | null
}

/** When ticks are due. `null`: never again. */
export type NextTick = (afterMs: number) => number | null

/** Dates end there. A tick beyond would close the schedule for good. */
const LATEST_TICK_MS = 8_640_000_000_000_000

export function isTickTime(value: unknown): value is number {
  return Number.isSafeInteger(value) && Math.abs(value as number) <= LATEST_TICK_MS
}

/** More often than that, replicas would do little but ask who runs. */
const SHORTEST_PERIOD_MS = 100
const EXPRESSION_BYTES = 1_024

export async function timesOf(
  { cron, timeZone, everyMs }: ScheduleOptions,
  nowMs: number,
): Promise<NextTick> {
  if ((cron === undefined) === (everyMs === undefined))
    throw new InvalidArgumentError('options', 'must have one of cron and everyMs.')
  if (timeZone !== undefined && typeof cron !== 'string')
    throw new InvalidArgumentError(
      'timeZone',
      'belongs to a cron expression; a Cron of your own has its own zone, and everyMs has none.',
    )
  if (cron === undefined) {
    const periodMs = checkInteger('everyMs', everyMs, { min: SHORTEST_PERIOD_MS })
    return (afterMs) => (Math.floor(afterMs / periodMs) + 1) * periodMs
  }
  const times = typeof cron === 'string' ? await parseCron(cron, timeZone) : cron
  if (typeof times?.nextRun !== 'function')
    throw new InvalidArgumentError('cron', 'must be a cron expression, or a Cron of croner.')
  const shown = shownCron(cron)
  const next: NextTick = (afterMs) => {
    const tick = times.nextRun(dateOf(afterMs))?.getTime() ?? null
    // Otherwise the search for the latest tick would not end.
    if (tick !== null && !(tick > afterMs))
      throw new InvalidArgumentError(
        'cron',
        `${shown}must return from nextRun a time after the one that it is given.`,
      )
    return tick
  }
  if (refusing(shown, () => next(nowMs)) === null)
    throw new InvalidArgumentError('cron', `${shown}has no time in the future.`)
  return next
}

async function parseCron(expression: string, timeZone: string | undefined): Promise<CronTimes> {
  checkText('cron', expression, EXPRESSION_BYTES)
  if (timeZone !== undefined) checkText('timeZone', timeZone, EXPRESSION_BYTES)
  const { Cron } = (await loadPeer('croner').catch((cause: unknown) => {
    throw new UnsupportedError(
      'A cron expression needs the package croner: npm install croner. Or pass a Cron of croner, or everyMs.',
      { cause },
    )
  })) as { Cron: new (expression: string, options: object) => CronTimes }
  return refusing(
    shownCron(expression),
    () => new Cron(expression, timeZone === undefined ? {} : { timezone: timeZone }),
  )
}

/** A program may have many schedules: the message says which expression is meant. */
function shownCron(cron: string | CronTimes): string {
  return typeof cron === 'string' ? `${quote(cron)} ` : ''
}

/** Croner says what is wrong with an expression or a zone. */
function refusing<T>(shown: string, work: () => T): T {
  try {
    return work()
  } catch (cause) {
    if (isHoldfastError(cause)) throw cause
    throw new InvalidArgumentError('cron', `${shown}is refused: ${(cause as Error)?.message ?? cause}`, {
      cause,
    })
  }
}

/** The intervals of a cron expression differ, and those of its next ticks show the shortest. */
const TICKS_LOOKED_AT = 100

export function checkHold(holdAtLeastMs: number, next: NextTick, nowMs: number): void {
  if (holdAtLeastMs === 0) return
  let shortestMs = Number.POSITIVE_INFINITY
  let last = next(nowMs)
  for (let count = 1; last !== null && count < TICKS_LOOKED_AT; count++) {
    const tick = next(last)
    if (tick !== null) shortestMs = Math.min(shortestMs, tick - last)
    last = tick
  }
  if (holdAtLeastMs > shortestMs / 2)
    throw new InvalidArgumentError(
      'holdAtLeastMs',
      `must be at most half of the time between two ticks, which is ${shortestMs / 2} at the shortest, not ${holdAtLeastMs}: the next tick would find the name closed.`,
    )
}

/** Some expressions are due on 29 February only. */
const LONGEST_SPAN_MS = 9 * 366 * 86_400_000

/** The last ticks after `afterMs` and until `untilMs`, at most so many, in order. Looks back in growing spans. */
export function ticksBetween(next: NextTick, afterMs: number, untilMs: number, most: number): number[] {
  for (let spanMs = 1_000; ; spanMs *= 2) {
    const fromMs = Math.max(afterMs, untilMs - spanMs)
    const ticks: number[] = []
    for (let tick = next(fromMs); tick !== null && tick <= untilMs; tick = next(tick)) ticks.push(tick)
    if (ticks.length >= most || fromMs === afterMs || spanMs > LONGEST_SPAN_MS) return ticks.slice(-most)
  }
}

/** The latest tick that is due; `null` if there was none after `afterMs`. */
export function latestTick(next: NextTick, nowMs: number, afterMs = Number.NEGATIVE_INFINITY): number | null {
  return ticksBetween(next, afterMs, nowMs, 1)[0] ?? null
}
