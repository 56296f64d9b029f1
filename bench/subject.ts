/**
 * What can be measured: a file in `subjects/` for each backend, which says whom to compare with whom. A peer is one
 * more contender in that file.
 */

/** Somebody who can take a name and give it back, ready to run. */
export interface Running {
  /** Acquires and releases once. Rejects when it did not get the name: there is no contention in these. */
  pair(name: string): Promise<void>
  close(): Promise<void>
}

export interface Contender {
  readonly name: string
  /** `folder` is empty and its own. */
  open(folder: string): Promise<Running>
}

/** Contenders who do the same work under the same setting. The first is the measure of the others. */
export interface Comparison {
  readonly setting: string
  readonly contenders: readonly [raw: Contender, ...others: Contender[]]
}

export interface Subject {
  /** One sentence: what the raw statements are. */
  readonly raw: string
  readonly comparisons: readonly Comparison[]
  /** The URL for `openLocker`, for waiters on one name, and over how many processes they are spread. */
  readonly handOver: { url(folder: string): string; readonly processes: readonly number[] }
}
