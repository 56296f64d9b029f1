/**
 * The history of a run, as plain data: what a simulation, scenarios with real processes and tests all write, and
 * what the checkers read.
 *
 * On disk a history is JSON lines. The first line says what is known about the run (`about`); each other line is one
 * event. Tokens are decimal strings on disk and `bigint` in memory: as JSON numbers they would lose digits (T42, tokens as doubles).
 *
 *   {"kind":"about","version":1,"backend":"redis","fencing":"fenced","waiting":"queue","expirySlackMs":0,"roundTripMs":2}
 *   {"kind":"invoke","seq":1,"at":10,"id":"op1","process":"p1","op":"acquire","name":"n","ttlMs":1000}
 *   {"kind":"return","seq":2,"at":12,"id":"op1","outcome":"ok","leaseId":"a","token":"17"}
 *   {"kind":"belief","what":"began","seq":3,"at":12,"process":"p1","name":"n","leaseId":"a","sentAt":10,"ttlMs":1000}
 *
 * Every event has an `at`, in milliseconds (fractions allowed) on one clock, the observer's, and a `seq`, which
 * strictly increases and never contradicts `at`. A precedes B when A's event has the lower `seq`; so where several
 * processes wrote, merge with `mergeEvents`, which reads equal times as "at once" where it can.
 *
 * Rules for who writes:
 *
 * - Write the invocation before the call is made: a process that is killed leaves a pending operation, and that is
 *   what it is. Pending operations count as `unknown`.
 * - `fail` means that the operation certainly has had no effect and never will. Everything else that is not `ok` is
 *   `unknown`. A release that answers "not held" after a first try was lost is `unknown`.
 * - A `leaseId` may be left out where a process has at most one claim on a name at a time; it is filled in then.
 * - Belief is what the lease says when it is read. `seen` is such a reading. A process that was stopped writes the end
 *   of its belief when it runs again, with `believedUntil`: the last moment at which a reading could have said "held".
 * - Engine events stand in the engine's own order. Guard events stand in the order in which the guard decided, and
 *   an acceptance is written only if its effect was committed.
 */

/** Where an event stands: its place in the order of all, and its time on the observer's clock in milliseconds. */
export interface Stamp {
  readonly seq: number
  readonly at: number
}

/** Facts about the run as a whole. A check that needs a fact that is left out cannot judge. */
export interface About {
  readonly kind: 'about'
  readonly version: 1
  readonly backend?: string
  /** Of tokens that name no issuer themselves. */
  readonly issuer?: string
  readonly fencing?: 'fenced' | 'unfenced'
  readonly waiting?: 'queue' | 'poll'
  readonly expirySlackMs?: number
  readonly roundTripMs?: number
  readonly lockDelayMs?: number
  /**
   * `exact`: an engine event's `at` and `seq` say when it happened. `seen` (the default): they say when it was learnt,
   * so it happened then or before.
   */
  readonly engineTimes?: 'exact' | 'seen'
}

export type Mode = 'exclusive' | 'shared' | 'permits'

/** How much is asked for. Without weight and capacity the mode decides; without a mode it is exclusive. */
export interface Asked {
  readonly mode?: Mode
  readonly weight?: number
  readonly capacity?: number
}

export type OperationKind =
  | 'acquire'
  | 'release'
  | 'renew'
  /** Makes sure that an attempt neither holds nor waits. */
  | 'abandon'
  /** Gives up everything that the process holds; has no name. */
  | 'close'
  /** Aimed at a lease, a token, a holder (`target`), or, without any of these, at all holders of the name. */
  | 'force-release'
  /** Touches the protected resource. `update` is a whole read-modify-write. */
  | 'read'
  | 'write'
  | 'update'

export type Outcome = 'ok' | 'fail' | 'unknown'

/** Facts that both ends of an operation may state; where both do, the return counts. */
interface OperationFacts {
  readonly leaseId?: string
  readonly token?: bigint
  readonly ttlMs?: number
  /**
   * Of an acquire or a renewal: when the request was sent that the claim counts from. Default: the invocation. Where
   * leases ride on a session that is older, say it, or record beliefs: they count instead of the acquire.
   */
  readonly sentAt?: number
  /** The entry on which a read-modify-write was based, and the one it left: for resources that are overwritten. */
  readonly saw?: string
  readonly wrote?: string
}

export interface InvokeEvent extends Stamp, Asked, OperationFacts {
  readonly kind: 'invoke'
  /** Of the operation; unique in the history. */
  readonly id: string
  readonly process: string
  readonly op: OperationKind
  readonly name?: string
  readonly issuer?: string
  /** Whether an acquire waits for its turn. */
  readonly waits?: boolean
  readonly lockDelayMs?: number
  readonly holdAtLeastMs?: number
  /** The process whose claim a force release is aimed at. */
  readonly target?: string
  /** Set when the access goes through this guard. */
  readonly guard?: string
  readonly once?: boolean
  /** The resource that is touched, if it is not called like the name. */
  readonly resource?: string
  /** The number that an update adds to a counter. 2: the counter went from 5 to 7. */
  readonly delta?: number
  /** The entry that an update appends to a log: unique. */
  readonly entry?: string
}

export interface ReturnEvent extends Stamp, OperationFacts {
  readonly kind: 'return'
  readonly id: string
  readonly outcome: Outcome
  /** How many holders a force release has ended. */
  readonly count?: number
  readonly error?: string
}

/** The client has learnt that its acquire has a place in the engine's line. A second one: it lost that place. */
export interface QueuedEvent extends Stamp {
  readonly kind: 'queued'
  readonly id: string
}

export type BeliefEvent =
  | (Stamp &
      Asked & {
        readonly kind: 'belief'
        readonly what: 'began'
        readonly leaseId: string
        readonly process: string
        readonly name: string
        readonly token?: bigint
        /** When the request was sent that the belief counts from. */
        readonly sentAt: number
        readonly ttlMs: number
        readonly driftMs?: number
      })
  /** A prolongation was confirmed. */
  | (Stamp & {
      readonly kind: 'belief'
      readonly what: 'confirmed'
      readonly leaseId: string
      readonly sentAt: number
      readonly ttlMs?: number
    })
  /** The lease was read and said held or jeopardy. */
  | (Stamp & { readonly kind: 'belief'; readonly what: 'seen'; readonly leaseId: string })
  | (Stamp & {
      readonly kind: 'belief'
      readonly what: 'ended'
      readonly leaseId: string
      readonly why: 'released' | 'lost'
      /** As in `LeaseLostError`. */
      readonly reason?: string
      readonly believedUntil?: number
    })

export type EngineEventKind =
  | 'granted'
  | 'renewed'
  /** By its holder, or on its holder's behalf. */
  | 'released'
  | 'expired'
  | 'forced'
  /** By anybody or anything else. Without a lease: all of the name; without a name: everything. */
  | 'deleted'
  /** An attempt joined the queue, or left it without having been granted. */
  | 'enqueued'
  | 'left'
  | 'resized'
  /** Events are missing here: what the engine holds from here on is not known. */
  | 'gap'

export interface EngineEvent extends Stamp, Asked {
  readonly kind: 'engine'
  readonly what: EngineEventKind
  readonly name?: string
  readonly leaseId?: string
  readonly process?: string
  readonly issuer?: string
  readonly token?: bigint
  readonly ttlMs?: number
  /** The operation that caused it, where the engine can tell. */
  readonly by?: string
}

export interface GuardEvent extends Stamp {
  readonly kind: 'guard'
  readonly guard: string
  readonly name: string
  readonly verdict: 'accepted' | 'refused'
  readonly token: bigint
  /** The grant that the fence names. */
  readonly leaseId: string
  readonly mode?: 'exclusive' | 'shared'
  readonly issuer?: string
  readonly process?: string
  readonly access?: 'read' | 'write'
  readonly once?: boolean
  readonly reason?: 'stale' | 'foreign' | 'used'
  /** The highest token that the guard said it had seen. */
  readonly highest?: bigint
}

/** Something was done to a process, or, without one, to the engine or the network of all. A crash has no end. */
export interface FaultEvent extends Stamp {
  readonly kind: 'fault'
  readonly what: 'crash' | 'pause' | 'cut-off' | 'outage'
  readonly phase: 'began' | 'ended'
  readonly process?: string
}

/** From here on, claims on this name, or of this process, or all, may have ended by other means than their time. */
export interface MeddledEvent extends Stamp {
  readonly kind: 'meddled'
  readonly name?: string
  readonly process?: string
  readonly note?: string
}

/** An answer of `inspect`; it was true at some moment between `askedAt` and `at`. */
export interface SnapshotEvent extends Stamp {
  readonly kind: 'snapshot'
  readonly name: string
  readonly askedAt: number
  readonly holders: readonly Claimant[]
  readonly waiters: readonly Claimant[]
}

export interface Claimant {
  readonly leaseId: string
  readonly process?: string
  readonly token?: bigint
}

/**
 * From here until the next invocation (on this name) nobody holds or asks, and no request is on its way: whatever was
 * asked for before and is found afterwards is a leftover.
 */
export interface QuietEvent extends Stamp {
  readonly kind: 'quiet'
  readonly name?: string
}

/** The protected resource in the end: the value of a counter or a register, or the entries of a log. */
export interface FinalEvent extends Stamp {
  readonly kind: 'final'
  readonly resource: string
  /** Of a counter. Default 0. */
  readonly initial?: number
  readonly total?: number
  /** Of a register that is overwritten. */
  readonly value?: string
  readonly entries?: readonly string[]
}

export type HistoryEvent =
  | InvokeEvent
  | ReturnEvent
  | QueuedEvent
  | BeliefEvent
  | EngineEvent
  | GuardEvent
  | FaultEvent
  | MeddledEvent
  | SnapshotEvent
  | QuietEvent
  | FinalEvent

/** The two ends of an operation, joined. A pending one has the outcome `unknown` and no return. */
export interface Operation extends Omit<InvokeEvent, 'kind' | 'name'> {
  /** Empty for a `close`. */
  readonly name: string
  readonly outcome: Outcome
  /** Where it returned, however it ended; infinite if it is pending. */
  readonly returnedSeq: number
  readonly returnedAt: number
  readonly queued: readonly Stamp[]
  readonly count?: number
  readonly error?: string
}

export interface Confirmation extends Stamp {
  readonly sentAt: number
  readonly ttlMs: number
}

/** One lease's belief, joined from its events. */
export interface Belief extends Stamp, Asked {
  readonly leaseId: string
  readonly process: string
  readonly name: string
  readonly token?: bigint
  readonly driftMs: number
  /** In order; the first is what it began with. */
  readonly confirmations: readonly Confirmation[]
  /** The readings that said held or jeopardy. */
  readonly seen: readonly Stamp[]
  /** Null if its end was not recorded. */
  readonly ended:
    | (Stamp & { readonly why: 'released' | 'lost'; readonly reason?: string; readonly until: number })
    | null
}

/** A history, put together and sound in itself. */
export interface History {
  readonly about: About
  readonly events: readonly HistoryEvent[]
  readonly operations: readonly Operation[]
  readonly beliefs: readonly Belief[]
  readonly engine: readonly EngineEvent[]
  readonly guard: readonly GuardEvent[]
  readonly faults: readonly FaultEvent[]
  readonly meddled: readonly MeddledEvent[]
  readonly snapshots: readonly SnapshotEvent[]
  readonly quiet: readonly QuietEvent[]
  readonly finals: readonly FinalEvent[]
  /** The time of the last event. */
  readonly endedAt: number
}
