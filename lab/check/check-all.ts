/**
 * Runs every check on a history. A check that could not judge anything for lack of data is not "ok": it is said so, and
 * the whole is then `incomplete`, unless the caller has declared that it expects that, with the reason.
 */
import { type CheckId, checkIds, type Finding } from './findings.ts'
import { checkExclusion } from './g1-exclusion.ts'
import { checkTokens } from './g2-tokens.ts'
import { checkBelief } from './g3-belief.ts'
import { checkGuard } from './g5-guard.ts'
import { checkNothingLeft } from './g6-nothing-left.ts'
import { checkCrossfire } from './g7-crossfire.ts'
import { checkFirstComeFirstServed } from './g8-fifo.ts'
import { checkProgress } from './g10-progress.ts'
import { checkEarlySteal } from './g13-early-steal.ts'
import type { History } from './history.ts'
import {
  checkHistoryLinearizable,
  type HistoryLinearizabilityOptions,
} from './linearizability/check-history.ts'
import { checkLostUpdates } from './lost-updates.ts'

export type Status = 'held' | 'violated' | 'not-judged'

export interface Exception {
  readonly check: CheckId
  readonly status: 'violated' | 'not-judged'
  readonly why: string
}

export interface CheckOptions {
  /** Default: all. */
  readonly only?: readonly CheckId[]
  /** Exceptions: this run may break these rules, for instance because it breaks an assumption on purpose. */
  readonly except?: readonly Exception[]
  /** How far apart two readings of the recorder's clock may be for what was one moment (G3). Default 0. */
  readonly toleranceMs?: number
  readonly linearizability?: HistoryLinearizabilityOptions
}

export interface CheckResult extends Finding {
  readonly status: Status
  /** The exception that allows this status. */
  readonly exception: Exception | null
}

export interface Report {
  /** `ok`: every check has judged something, and what it judged holds; or it was excepted. */
  readonly verdict: 'ok' | 'violated' | 'incomplete'
  readonly checks: readonly CheckResult[]
  /** Exceptions that were not needed: the author of the declaration may want to know. */
  readonly needless: readonly Exception[]
}

const checkers: Record<CheckId, (history: History, options: CheckOptions) => Finding> = {
  G1: checkExclusion,
  G2: checkTokens,
  G3: checkBelief,
  G5: checkGuard,
  G6: checkNothingLeft,
  G7: checkCrossfire,
  G8: checkFirstComeFirstServed,
  G10: checkProgress,
  G13: checkEarlySteal,
  'lost-updates': checkLostUpdates,
  linearizability: (history, { linearizability }) => checkHistoryLinearizable(history, linearizability),
}

export function checkAll(history: History, options: CheckOptions = {}): Report {
  const { only = checkIds, except = [] } = options
  const checks = only.map((check): CheckResult => {
    const finding = checkers[check](history, options)
    const status = statusOf(finding)
    const exception = except.find((each) => each.check === check && each.status === status) ?? null
    return { ...finding, status, exception }
  })
  const bad = checks.filter(({ status, exception }) => status !== 'held' && exception === null)
  const used = new Set(checks.map(({ exception }) => exception))
  return {
    verdict:
      bad.length === 0 ? 'ok' : bad.some(({ status }) => status === 'violated') ? 'violated' : 'incomplete',
    checks,
    needless: except.filter((each) => !used.has(each)),
  }
}

function statusOf({ violations, judged }: Finding): Status {
  if (violations.length > 0) return 'violated'
  return judged > 0 ? 'held' : 'not-judged'
}

/** The report for people; at most `most` violations of each check. */
export function describeReport({ verdict, checks, needless }: Report, most = 5): string {
  return [
    `verdict: ${verdict}`,
    ...checks.flatMap(({ check, status, judged, violations, notJudged, exception }) => [
      `${check}: ${status} (${judged} judged)${exception === null ? '' : `, as declared: ${exception.why}`}`,
      ...violations.slice(0, most).map(({ message }) => `  ✗ ${message.replaceAll('\n', '\n    ')}`),
      ...(violations.length > most ? [`  ✗ … ${violations.length - most} more`] : []),
      ...notJudged.map(({ why, times }) => `  ? ${why}${times === 1 ? '' : ` (${times} times)`}`),
    ]),
    ...needless.map(({ check, status, why }) => `exception that was not needed: ${check} ${status}: ${why}`),
  ].join('\n')
}
