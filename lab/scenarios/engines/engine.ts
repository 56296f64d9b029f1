/**
 * An engine, as a scenario sees it: how it is started, how a client process opens it, what protects a resource under
 * its leases, and which misfortunes it can be given. A scenario knows engines only through this.
 */
import type { Backend } from '../../../packages/holdfast/src/spi.ts'
import type { ResourceName } from '../resources/resource.ts'

export type EngineName =
  | 'sqlite'
  | 'redis'
  | 'redlock'
  | 'postgres'
  | 'postgres-advisory'
  | 'etcd'
  | 'zookeeper'
  | 'consul'

/** Addresses by which a client finds the engine: a path, or the URL of every server. */
export type Addresses = readonly string[]

/**
 * How a client is cut off: `blackhole` loses everything in both directions; `one-way` lets requests through and loses the
 * answers; `late` loses nothing, but delivers it when the partition is over.
 */
export const ways = ['blackhole', 'one-way', 'late'] as const
export type Way = (typeof ways)[number]

/** Everything that some engine can be given. That a client is stopped needs nothing from the engine. */
export interface Faults {
  /** Steps the clock of as many servers as decide, forward. Says what was done. */
  readonly clock: { step(ms: number): string }
  /**
   * Steps the clock of one server, forward. Before that, `part` keeps a client from all servers that make no majority without
   * this one, until `rejoin`.
   */
  readonly oneClock: { part(client: string): void; step(ms: number): string; rejoin(client: string): void }
  /** The network of one client. */
  readonly partition: { cutOff(client: string, way: Way): void; heal(client: string): void }
  /** All of the servers that decide stand still, and go on. */
  readonly freeze: { freeze(): Promise<string>; thaw(): Promise<void> }
  /** One of several members stands still. A waiter and a watcher are connected to it. */
  readonly frozenMember: {
    /** Resolves when a client waits in the queue. */
    waits(): Promise<void>
    freeze(): Promise<string>
    /** Resolves when the watcher was told of a grant that was made since. */
    isTold(): Promise<void>
    thaw(): Promise<void>
  }
  /** The engine refuses everything that needs space. */
  readonly full: {
    fill(): Promise<string>
    /** Resolves when the session of a client that was stopped has ended. */
    isFree(): Promise<void>
    makeSpace(): Promise<void>
  }
  /** From `holdBack` on the replica learns of nothing; `failOver` kills the primary and promotes that replica. */
  readonly failOver: { holdBack(): Promise<void>; failOver(): Promise<string> }
  /** All clients reach the server through a pooler in transaction mode, so none has a session of its own. */
  readonly pooler: {
    /** Whether two clients were given one and the same session lock. */
    mixesSessionsUp(): Promise<boolean>
    /** With which words the library refuses to rest locks on sessions there; null if it does not. */
    refusal(): Promise<string | null>
  }
}

export type FaultName = keyof Faults

export interface StartOptions {
  readonly clients: readonly string[]
  /** The one that will be needed. */
  readonly fault: FaultName | null
}

export interface RunningEngine extends AsyncDisposable {
  /** Each client may have a way of its own to the servers, so that it can be cut off alone. */
  addressesFor(client: string): Addresses
  /** For the harness, and for the resource if it is in the same server: they are never cut off. */
  readonly addresses: Addresses
  readonly faults: Partial<Faults>
  /** Whether a client that stands still at this moment is in the way of all others, which would be another scenario. */
  isBlocked?(): Promise<boolean>
}

export interface OpenEngine {
  readonly backend: Backend
  /** Closes what belongs to the user of a backend: its connections. */
  close(): Promise<void>
}

export interface Engine {
  readonly name: EngineName
  readonly resource: ResourceName
  /** A guard needs fences. Where there are none, the resource itself has to compare what it holds with what was read. */
  readonly protection: 'guard' | 'compare-and-set'
  readonly faults: readonly FaultName[]
  /**
   * The faults that break what the engine assumes, each with the sentence of `info.assumptions` that says so. Two may then
   * believe at once; everything else has to hold all the same.
   */
  readonly assumes: { readonly [Fault in FaultName]?: RegExp }
  /** Published results of others about locks on this engine without a guard, to stand beside the control. */
  readonly published?: string
  start(options: StartOptions): Promise<RunningEngine>
  /** In a client process. */
  open(addresses: Addresses, ttlMs: number): Promise<OpenEngine>
}

/** Takes a fault that `Engine.faults` has promised to a scenario. */
export function needFault<Name extends FaultName>(engine: RunningEngine, name: Name): Faults[Name] {
  const fault = engine.faults[name]
  if (fault === undefined) throw new Error(`the engine was not started for ${name}`)
  return fault
}
