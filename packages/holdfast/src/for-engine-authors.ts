/**
 * The interface that the author of a backend imports as `holdfast/spi`, and the helpers with which Holdfast's own
 * backends are written. Errors and defaults are in `holdfast`, the conformance suite is in `holdfast/testing`.
 */

export { callWith, unlessAborted, unlessStopped } from './base/aborting.ts'
export { allPages } from './base/all-pages.ts'
export { Background } from './base/background.ts'
export { Cancellation, unlessCancelled } from './base/cancellation.ts'
export { elapsedMs, instantOf, judgeLate, laterOf, sleep, systemClock } from './base/clock.ts'
export { defaultDriftMs } from './base/defaults.ts'
export { warn } from './base/events.ts'
export { publicIdOf, systemRandom } from './base/ids.ts'
export { checkNamespace, checkText, compareNames, escapeName, unescapeName } from './base/names.ts'
export { checkInteger, checkKnownOptions, checkNumber, checkOneOf } from './base/options.ts'
export { growingPauseMs, type PauseRange } from './base/pauses.ts'
export { settledWithin, type WithinOptions, withLimit } from './base/within.ts'
export { answering } from './kit/answering.ts'
export { type AskingTerms, askAgain } from './kit/asking-again.ts'
export {
  cancelledCall,
  checkIdentity,
  claimState,
  type IdentityOptions,
  listAll,
  neverCancelled,
  operatorCallExpired,
  pageOf,
  prolongedSince,
  raisedTtlMs,
  throwIfCancelled,
} from './kit/backend-kit.ts'
export { BatchTokens } from './kit/batch-tokens.ts'
export {
  type ClaimRecord,
  claimRecord,
  type DataRecord,
  type MarkRecord,
  type SessionRecord,
} from './kit/claim-records.ts'
export { type ClusterAddress, type ClusterUrlTerms, clusterFromUrl } from './kit/cluster-url.ts'
export type {
  ClaimStore,
  GrantedByStore,
  Joined,
  NameStore,
  Prolonged,
} from './kit/conditional-store.ts'
export {
  asFailedRead,
  ConnectionError,
  connectFailure,
  connectionFailure,
  type Dialled,
  type DialledEngine,
  malformed,
  messageOf,
} from './kit/connect-failure.ts'
export {
  type FollowedLog,
  followLog,
  KEPT_EVENTS,
  type LogPage,
  type LogPicture,
  LogWatchers,
  PROLONGED_EVERY_MS,
  WATCHED_FOR_MS,
} from './kit/follow-log.ts'
export { type FrameHead, Frames, MalformedError } from './kit/frames.ts'
export { ifInstalled, noneInstalled } from './kit/if-installed.ts'
export { describeInfo } from './kit/info.ts'
export { type Asker, Lane, type LaneOptions, type Sent } from './kit/lane.ts'
export { Lifetime } from './kit/lifetime.ts'
export { LiveEvents, type LiveSource } from './kit/live-events.ts'
export { Looks, type LooksOptions } from './kit/looks.ts'
export {
  type Asked,
  type MemberConnection,
  Members,
  type MembersOptions,
  type Silence,
} from './kit/members.ts'
export {
  type JoinResult,
  type OrderedStore,
  type QueueEntry,
  type QueueStanding,
  type QueueView,
  type WatchedKey,
  weightInUse,
} from './kit/ordered-store.ts'
export { type PolledKeys, PolledWatches, type PolledWatchesOptions } from './kit/polled-watches.ts'
export { PredecessorQueue, type PredecessorQueueOptions } from './kit/predecessor-queue.ts'
export * from './kit/rules.ts'
export {
  compareClaims,
  type FoundClaim,
  type GrantFacts,
  grantOf,
  SessionBase,
  type SessionFacts,
} from './kit/session.ts'
export { type Done, StepSession, type StepWaiter, type StepWork } from './kit/step-session.ts'
export { type OpenedClaims, StoreBackend, type StoreBackendOptions } from './kit/store-backend.ts'
export { type SendJoin, StoreQueue } from './kit/store-queue.ts'
export { StoreSession, type StoreSessionOptions } from './kit/store-session.ts'
export { type NameFacts, type QueuedClaim, type StoredClaim, StoredName, toldOf } from './kit/stored-name.ts'
export {
  asCount,
  asFlag,
  asOneOf,
  asText,
  type Engines,
  type FromUrl,
  LockerUrl,
  onOwnClient,
  type ReadParameter,
} from './kit/url.ts'
export { type Waiter, WaitingRoom, type WaitingRoomOptions } from './kit/waiting-room.ts'
export { Changes, currentHolders, picture, type ToldEvent, toldEvent, watching } from './kit/watching.ts'
export { openBackend } from './open.ts'
export * from './spi.ts'
