/**
 * The resource that the clients protect: one document that grows by an entry at a time and is always written as a whole, so whoever
 * writes by an old reading takes out what came in the meantime.
 */
import type { Fence } from '../../../packages/holdfast/src/base/fence.ts'
import type { Addresses, RunningEngine } from '../engines/engine.ts'

export type ResourceName = 'sqlite' | 'redis' | 'postgres'

/** `none` is the control's: it trusts the lock alone. */
export type Protection = 'none' | 'guard' | 'compare-and-set'

export interface Document {
  readonly entries: readonly string[]
  readonly version: number
}

export interface Touched {
  /** When the atomic step was, on the observer's clock, if the guard is timed. */
  readonly at?: number
}

export interface OpenResource {
  /** Timed: its step happens in the client, inside of a transaction. A server's step is on another clock. */
  readonly guard: { readonly name: string; readonly isTimed: boolean } | null
  /** Without a guard the fence is not asked for. */
  read(fence: Fence | undefined): Promise<Document & Touched>
  /** `before`: what the new entries are based on. */
  write(entries: readonly string[], before: Document, fence: Fence | undefined): Promise<Touched>
  close(): Promise<void>
}

export interface RunningResource extends AsyncDisposable {
  readonly addresses: Addresses
  /** As `RunningEngine.isBlocked`. */
  isBlocked?(): Promise<boolean>
}

export interface Resource {
  readonly name: ResourceName
  start(engine: RunningEngine): Promise<RunningResource>
  open(addresses: Addresses, protection: Protection): Promise<OpenResource>
}

/** Compare-and-set: the document is not what it was when it was read. */
export class ChangedMeanwhileError extends Error {
  constructor() {
    super('the document has changed since it was read')
    this.name = 'ChangedMeanwhileError'
  }
}

/** It is unknown whether the write took effect. */
export class UnknownOutcomeError extends Error {
  constructor(cause: unknown) {
    super(`the resource did not say what became of it: ${cause}`, { cause })
    this.name = 'UnknownOutcomeError'
  }
}

export function needFence(fence: Fence | undefined): Fence {
  if (fence === undefined) throw new Error('a guard needs a fence, and this engine issues none')
  return fence
}
