/** The history checkers of the lab: record what happened, then ask whether it keeps what the guarantees promise. */
export { assemble } from './assemble.ts'
export {
  type CheckOptions,
  type CheckResult,
  checkAll,
  describeReport,
  type Exception,
  type Report,
  type Status,
} from './check-all.ts'
export { type CheckId, checkIds, type Finding, type Violation } from './findings.ts'
export { checkExclusion } from './g1-exclusion.ts'
export { checkTokens } from './g2-tokens.ts'
export { checkBelief } from './g3-belief.ts'
export { checkGuard } from './g5-guard.ts'
export { checkNothingLeft } from './g6-nothing-left.ts'
export { checkCrossfire } from './g7-crossfire.ts'
export { checkFirstComeFirstServed } from './g8-fifo.ts'
export { checkProgress } from './g10-progress.ts'
export { checkEarlySteal } from './g13-early-steal.ts'
export type * from './history.ts'
export { HistoryError } from './history-error.ts'
export {
  checkLinearizable,
  type Linearizability,
  type LinearizabilityOptions,
  type NameResult,
} from './linearizability/check.ts'
export { checkHistoryLinearizable } from './linearizability/check-history.ts'
export { lockActs } from './linearizability/from-history.ts'
export type { Act, Model } from './linearizability/model.ts'
export type { LockCall } from './linearizability/models/call.ts'
export { fencedMutex } from './linearizability/models/fenced-mutex.ts'
export { mutex } from './linearizability/models/mutex.ts'
export { reentrantFencedMutex } from './linearizability/models/reentrant-fenced-mutex.ts'
export { semaphore } from './linearizability/models/semaphore.ts'
export { formatHistory, formatLine, parseHistories, parseHistory, parseLines } from './lines.ts'
export { checkLostUpdates } from './lost-updates.ts'
export { mergeEvents } from './merge.ts'
export { type Answer, type Invoked, type NewEvent, type NewInvocation, Recorder } from './recorder.ts'
