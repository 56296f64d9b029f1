/** Holdfast: leases with fencing tokens, over the engine that you already run. */
export { type Clock, systemClock, type Timer } from './base/clock.ts'
export { defaults, limits } from './base/defaults.ts'
export {
  AcquireTimeoutError,
  type AnyHoldfastError,
  BackendUnavailableError,
  type BodyOutcome,
  type CallOutcome,
  CapacityMismatchError,
  ClosedError,
  ConflictError,
  type ErrorByCode,
  type ErrorCode,
  FenceForeignError,
  FenceInvalidError,
  type FenceProblem,
  FenceStaleError,
  HoldfastError,
  InvalidArgumentError,
  isHoldfastError,
  KeyReusedError,
  LeaseLostError,
  type LossReason,
  NotCommittedError,
  QueueFullError,
  StoredFailureError,
  UnsupportedError,
} from './base/errors.ts'
export {
  type AboutAttempt,
  type AboutLease,
  type AboutName,
  type AboutRequest,
  type EventKind,
  type HoldfastEvents,
  type LockOrder,
  onEvent,
  type WarningCode,
} from './base/events.ts'
export { type Fence, isFence } from './base/fence.ts'
export { type FenceKey, formatFence, type ParseFenceOptions, parseFence } from './base/fence-text.ts'
export type { Random } from './base/ids.ts'
export type {
  AcquireOptions,
  AnyLocker,
  BackendInfo,
  CallOptions,
  FencedLease,
  Fencing,
  Finding,
  ForceReleaseOptions,
  HolderState,
  HoldOptions,
  Lease,
  LeaseBase,
  LeaseSet,
  LeaseState,
  Locker,
  Mode,
  NameState,
  Page,
  PageOptions,
  Permit,
  PermitOptions,
  ReleaseOutcome,
  Scope,
  SessionState,
  TryAcquireOptions,
  TryPermitOptions,
  UnfencedLease,
  WaiterState,
  WatchOptions,
} from './base/types.ts'
export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from './guards/guard.ts'
export type { Engines } from './kit/url.ts'
export { explainName } from './locker/explain-name.ts'
export { createLocker, type LockerOptions } from './locker/locker.ts'
export { type OpenLockerOptions, openLocker, type Requirement } from './open.ts'
export type { Backend, WatchEvent, WatchEventKind } from './spi.ts'
