/**
 * A subject of measurements: a file in `subjects/` for each backend, which says whom to compare with whom. A peer is one
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
  /** How many pairs are in flight at the same time; one number for each measurement. Default: 1 and 64. */
  readonly atOnce?: readonly number[]
}

/** Gives back a lock that was taken, when it is called. */
export type GiveBack = () => Promise<unknown>

/** Somebody who can take a name and hold it for a while, and who waits when it is taken. */
export interface Taking {
  /** Null: gave up waiting, by its own rules. `waiter` is a small number, for those who need a connection for each. */
  take(name: string, waiter: number): Promise<GiveBack | null>
  /** Also while there are waiters: what they do then does not matter any more. */
  close(): Promise<void>
}

export interface Taker {
  readonly name: string
  openTaking(): Promise<Taking>
}

/** Many who want one name, all the time, and hold it for a moment. The first taker is the measure of the others. */
export interface Contest {
  readonly waiters: number
  readonly holdMs: number
  /** One sentence: what the first one does. */
  readonly floor: string
  readonly takers: readonly [floor: Taker, ...others: Taker[]]
}

export interface Subject {
  /** One sentence: what the first contenders are. */
  readonly raw: string
  /** How long a measurement lasts unless the command line says otherwise. Default: 1. */
  readonly seconds?: number
  /** Sentences about the set-up that a reader of the figures must know. */
  readonly remarks?: readonly string[]
  readonly comparisons: readonly Comparison[]
  readonly contest?: Contest
  /** The URL for `openLocker`, for waiters on one name, and over how many processes they are spread. */
  readonly handOver?: { url(folder: string): string; readonly processes: readonly number[] }
}

/** Where the contenders work. */
export interface Place {
  /** Of the servers; empty when the engine runs in this process. */
  readonly urls: readonly string[]
  /** Holdfast's namespace on them. */
  readonly namespace: string
}

export function firstUrl({ urls }: Place): string {
  const [url] = urls
  if (url === undefined) throw new Error('This needs a server.')
  return url
}

export interface Servers {
  readonly urls: readonly string[]
  readonly pids: readonly number[]
  /** One sentence for the report. */
  readonly words: string
  /** A place with its own data: two versions of Holdfast may store it differently. */
  place(name: string): Promise<Place>
  /**
   * Left out where commands cannot be counted. `probe` runs a few pairs of a contender; the function that comes back says what
   * the commands of this contender have come to since the servers started.
   */
  commandsOf?(probe: () => Promise<void>): Promise<() => Promise<Commands>>
  stop(): Promise<void>
}

/** Commands or statements that clients have sent, and the time that the servers spent in them. */
export interface Commands {
  readonly count: number
  readonly us: number
}

export interface ServersOptions {
  /** Counting may cost the servers a little, so it is only done where it is asked for. */
  readonly countsCommands?: boolean
}

/** A file in `subjects/`. */
export interface SubjectModule {
  /** Left out when the engine runs in this process. */
  startServers?(options?: ServersOptions): Promise<Servers>
  subject(place: Place): Subject
}

export function isOurs(name: string): boolean {
  return name.startsWith('holdfast')
}

/** One who can take and hold can do pairs, too: everybody is called in the same way, raw commands included. */
export function contender({ name, openTaking }: Taker): Contender {
  return {
    name,
    async open() {
      const taking = await openTaking()
      return {
        async pair(resource) {
          const giveBack = await taking.take(resource, 0)
          if (giveBack === null) throw new Error(`${name} gave up on ${resource}, which nobody else wants`)
          await giveBack()
        },
        close: () => taking.close(),
      }
    },
  }
}
