/** The options that all guards share, checked. */
import { type Clock, systemClock } from '../base/clock.ts'
import { defaults, limits } from '../base/defaults.ts'
import { InvalidArgumentError } from '../base/errors.ts'
import { checkText } from '../base/names.ts'
import { checkKnownOptions, checkNumber, checkSignal } from '../base/options.ts'
import type { EnterOptions, GuardOptions, RunOptions } from './guard.ts'

export interface GuardSettings {
  readonly name: string
  readonly issuers: readonly string[] | null
  readonly forgetAfterMs: number
  readonly clock: Clock
}

const guardOptions = ['name', 'issuers', 'forgetAfterMs', 'clock']

export const guardDefaults = { name: 'default', forgetAfterMs: defaults.guardForgetAfterMs } as const

export function checkGuardOptions(
  options: GuardOptions & { readonly clock?: Clock },
  own: readonly string[] = [],
): GuardSettings {
  if (options === undefined) throw new InvalidArgumentError('guard options', 'must be given.')
  checkKnownOptions('guard options', options, [...guardOptions, ...own])
  const {
    name = guardDefaults.name,
    forgetAfterMs = guardDefaults.forgetAfterMs,
    clock = systemClock,
  } = options
  return {
    name: checkText('name', name, limits.nameBytes),
    issuers: options.issuers === undefined ? null : checkIssuers(options.issuers),
    forgetAfterMs: checkNumber('forgetAfterMs', forgetAfterMs, { min: 1, infinityAllowed: true }),
    clock,
  }
}

function checkIssuers(issuers: unknown): readonly string[] {
  if (!Array.isArray(issuers) || issuers.length === 0)
    throw new InvalidArgumentError('issuers', 'must be a list of at least one issuer.')
  return issuers.map((issuer) => checkText('issuers', issuer, limits.issuerBytes))
}

export function checkRunOptions(options: RunOptions = {}): {
  once: boolean
  signal: AbortSignal | undefined
} {
  checkKnownOptions('options', options, ['once', 'signal'])
  return { once: checkOnce(options.once), signal: checkSignal(options.signal) }
}

export function checkEnterOptions(options: EnterOptions = {}): { once: boolean } {
  checkKnownOptions('options', options, ['once'])
  return { once: checkOnce(options.once) }
}

export function checkPruneOptions(options: { readonly untouchedForMs: number }): number {
  checkKnownOptions('options', options, ['untouchedForMs'])
  return checkNumber('untouchedForMs', options?.untouchedForMs, { min: 0 })
}

function checkOnce(once: unknown): boolean {
  if (once === undefined || typeof once === 'boolean') return once ?? false
  throw new InvalidArgumentError('once', 'must be true or false.')
}
