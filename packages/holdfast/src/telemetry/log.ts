/** One line of a log for each event that matters. */
import { isHoldfastError, messageOf } from '../base/errors.ts'
import { type EventKind, eventKinds, type HoldfastEvents, onEvent } from '../base/events.ts'
import { checkText } from '../base/names.ts'
import { checkKnownOptions } from '../base/options.ts'
import { checkMethods, type Telemetry } from './collector.ts'

type Level = 'debug' | 'info' | 'warn' | 'error'

/** Loggers such as pino, winston and `console`: each line is one object. */
export type Logger = Readonly<Record<Level, (line: Record<string, unknown>) => void>>

export interface LogOptions {
  /** The field of the sentence: `msg`, the default, is that of pino; winston needs `message`. */
  readonly messageKey?: string
}

const levels: Readonly<Record<EventKind, Level>> = {
  waiting: 'debug',
  acquired: 'debug',
  busy: 'debug',
  'timed-out': 'info',
  failed: 'warn',
  renewed: 'debug',
  'renewal-failed': 'warn',
  jeopardy: 'warn',
  lost: 'error',
  released: 'debug',
  'release-failed': 'warn',
  'close-failed': 'warn',
  'held-long': 'warn',
  dropped: 'warn',
  paused: 'warn',
  'dual-owner-suspected': 'error',
  warning: 'warn',
  'lock-order': 'warn',
  'force-released': 'warn',
  'guard-accepted': 'debug',
  'guard-refused': 'warn',
  idempotent: 'debug',
  optimistic: 'debug',
  job: 'info',
  tick: 'info',
  leadership: 'info',
}

/** Logs what happens to all lockers and guards of this process, from now on. */
export function logEvents(logger: Logger, options: LogOptions = {}): Telemetry {
  checkKnownOptions('options', options, ['messageKey'])
  const messageKey = checkText('messageKey', options.messageKey ?? 'msg', 100)
  checkMethods('logger', logger, 'a logger', 'debug', 'info', 'warn', 'error')
  const stops = eventKinds.map((kind) =>
    onEvent(kind, (event) => logger[levelOf(kind, event)](lineOf(kind, event))),
  )
  function lineOf(kind: EventKind, event: object): Record<string, unknown> {
    const about = 'name' in event && typeof event.name === 'string' ? `: "${event.name}"` : ''
    const fields = Object.entries(event).map(([key, value]) => [key, loggable(key, value)])
    return { ...Object.fromEntries(fields), event: kind, [messageKey]: `holdfast: ${kind}${about}` }
  }
  return { stop: () => stops.splice(0).forEach((stop) => void stop()) }
}

/** Failures of the caller’s own doing, and those that are tried again, are no reason to wake a person. */
function levelOf(kind: EventKind, event: HoldfastEvents[EventKind]): Level {
  const { final, outcome } = event as { readonly final?: boolean; readonly outcome?: string }
  if (kind === 'failed' && (final === false || outcome === 'cancelled')) return 'debug'
  const isBad = outcome === 'set-aside' || (kind === 'tick' && (outcome === 'failed' || outcome === 'error'))
  return isBad ? 'warn' : levels[kind]
}

function loggable(key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (key !== 'error') return value
  return { code: isHoldfastError(value) ? value.code : null, message: messageOf(value) }
}
