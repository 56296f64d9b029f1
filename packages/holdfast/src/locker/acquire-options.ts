/** Turns what a caller asked for into what an engine is told, checking every rule on the way. */

import { defaults, limits } from '../base/defaults.ts'
import { InvalidArgumentError, UnsupportedError } from '../base/errors.ts'
import { warn } from '../base/events.ts'
import { checkName, checkText } from '../base/names.ts'
import {
  checkCallback,
  checkInteger,
  checkKnownOptions,
  checkNote,
  checkNumber,
  checkOneOf,
  checkSignal,
} from '../base/options.ts'
import type { AcquireOptions, HoldOptions, PermitOptions, WaitOptions } from '../base/types.ts'
import { type BackendInfo, type Fencing, LOCK_CAPACITY, type Mode } from '../spi.ts'
import type { Wanted } from './attempt.ts'
import { siteOfAcquire } from './dropped.ts'

/** Defaults of a locker, where a call says nothing. */
export interface AcquireDefaults {
  readonly ttlMs: number
  readonly waitMs: number
}

const holdOptions = [
  'ttlMs',
  'waitMs',
  'signal',
  'note',
  'owner',
  'maxWaiters',
  'maxHoldMs',
  'holdAtLeastMs',
  'lockDelayMs',
  'warnHoldMs',
  'onJeopardy',
] as const
const lockOptions = [...holdOptions, 'mode']
const permitOptions = [...holdOptions, 'capacity', 'weight']
const forWaiting: readonly string[] = ['waitMs', 'maxWaiters']
const tryLockOptions = lockOptions.filter((option) => !forWaiting.includes(option))
const tryPermitOptions = permitOptions.filter((option) => !forWaiting.includes(option))

/** `withWait`: whether `waitMs` and `maxWaiters` mean something to the call; `tryAcquire` does not wait. */
export function wantedLock(
  info: BackendInfo<Fencing>,
  name: string,
  options: AcquireOptions,
  locker: AcquireDefaults,
  withWait: boolean,
): Wanted {
  checkName(name)
  checkKnownOptions('options', options, withWait ? lockOptions : tryLockOptions)
  const mode =
    options.mode === undefined ? 'exclusive' : checkOneOf('mode', options.mode, ['exclusive', 'shared'])
  const weight = mode === 'exclusive' ? LOCK_CAPACITY : 1
  return wanted(info, name, mode, weight, LOCK_CAPACITY, options, locker)
}

export function wantedPermits(
  info: BackendInfo<Fencing>,
  name: string,
  options: PermitOptions,
  locker: AcquireDefaults,
  withWait: boolean,
): Wanted {
  checkName(name)
  checkKnownOptions('options', options, withWait ? permitOptions : tryPermitOptions)
  const capacity = checkCapacity(options?.capacity)
  const { weight: asked = 1 } = options
  const weight = checkInteger('weight', asked, { min: 1, max: capacity })
  return wanted(info, name, 'permits', weight, capacity, options, locker)
}

export function checkCapacity(capacity: unknown): number {
  return checkInteger('capacity', capacity, { min: 1, max: limits.maxCapacity })
}

export function checkWaitMs(waitMs: unknown): number {
  return checkNumber('waitMs', waitMs, { min: 0, infinityAllowed: true })
}

/** A TTL that the engine can grant: within its range, and rounded up to its step (T4, granted TTL). */
export function checkTtlMs(info: BackendInfo<Fencing>, asked: unknown): number {
  const { min, max, step } = info.ttlMs
  const ttlMs = Math.ceil(checkNumber('ttlMs', asked, { min, max }) / step) * step
  if (info.driftMs(ttlMs) >= ttlMs / 3)
    throw new InvalidArgumentError(
      'ttlMs',
      `of ${ttlMs} is too short: drift (${info.driftMs(ttlMs)} ms) must stay below a third of it.`,
    )
  if (ttlMs < 1_000 && !hasToldOfShortTtl) tellOfShortTtl(info, ttlMs)
  return ttlMs
}

/** The warning comes once for each process, also where `warning` has a listener. */
let hasToldOfShortTtl = false

function tellOfShortTtl({ name: backend, namespace }: BackendInfo<Fencing>, ttlMs: number): void {
  hasToldOfShortTtl = true
  const warning = `ttlMs is in milliseconds, and ${ttlMs} is shorter than a pause of a busy process, which then loses its leases`
  warn({ backend, namespace, code: 'HOLDFAST_TTL', warning })
}

function wanted(
  info: BackendInfo<Fencing>,
  name: string,
  mode: Mode,
  weight: number,
  capacity: number,
  options: HoldOptions & WaitOptions,
  locker: AcquireDefaults,
): Wanted {
  if (!info.modes.includes(mode))
    throw new UnsupportedError(`${info.name} cannot grant ${mode} leases; it can: ${info.modes.join(', ')}.`)
  const { ttlMs, signal, note, owner, maxWaiters, maxHoldMs, warnHoldMs, onJeopardy } = options
  if (signal !== undefined) checkSignal(signal)
  const request = {
    name,
    mode,
    weight,
    capacity,
    lockDelayMs: checkServerDuty(info, 'lockDelayMs', options.lockDelayMs),
    ...(note !== undefined && { note: checkNote(note) }),
    ...(owner !== undefined && { owner: checkText('owner', owner, limits.holderBytes) }),
    ...(maxWaiters !== undefined && { maxWaiters: checkMaxWaiters(info, maxWaiters) }),
  }
  // Most calls give few options, so what is not given costs no check.
  const terms = {
    ttlMs: ttlMs === undefined ? locker.ttlMs : checkTtlMs(info, ttlMs),
    request,
    maxHoldMs:
      maxHoldMs === undefined
        ? Number.POSITIVE_INFINITY
        : checkNumber('maxHoldMs', maxHoldMs, { min: 1, infinityAllowed: true }),
    holdAtLeastMs: checkServerDuty(info, 'holdAtLeastMs', options.holdAtLeastMs),
    warnHoldMs:
      warnHoldMs === undefined
        ? defaults.warnHoldMs
        : checkNumber('warnHoldMs', warnHoldMs, { min: 0, infinityAllowed: true }),
    onJeopardy: onJeopardy === undefined ? undefined : checkCallback('onJeopardy', onJeopardy),
    site: siteOfAcquire(wanted),
  }
  if (terms.holdAtLeastMs > terms.maxHoldMs)
    throw new InvalidArgumentError('holdAtLeastMs', `must not be more than maxHoldMs (${maxHoldMs}).`)
  return terms
}

function checkMaxWaiters(info: BackendInfo<Fencing>, maxWaiters: number): number {
  if (info.waiting !== 'queue')
    throw new UnsupportedError(`${info.name} has no queue, so maxWaiters cannot limit it.`)
  return checkInteger('maxWaiters', maxWaiters, { min: 0, max: limits.maxWaiters })
}

/** A delay that the engine or the waiters enforce. Where none of them can, it is refused and not ignored (G12). */
function checkServerDuty(
  info: BackendInfo<Fencing>,
  argument: 'lockDelayMs' | 'holdAtLeastMs',
  value: number | undefined,
): number {
  if (value === undefined) return 0
  const ms = checkNumber(argument, value, { min: 0, max: 86_400_000 })
  const by = argument === 'lockDelayMs' ? info.lockDelay : info.holdAtLeast
  if (ms > 0 && by === 'none') throw new UnsupportedError(`${info.name} cannot enforce ${argument}.`)
  return ms
}
