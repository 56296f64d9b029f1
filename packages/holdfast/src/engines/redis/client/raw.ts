/** Common methods of the two adapters: as little as the rest needs, without any policy. */

/** The library does not tell where the client was told to connect to. */
export const UNKNOWN_ADDRESS = 'unknown'

/** As it comes over the wire; integers are strings when ioredis was asked for that (`stringNumbers`). */
export type RedisReply = string | number | null | readonly RedisReply[]

/** One server. Its commands leave in the order in which they were given. */
export interface RawNode {
  /** `host:port` or the like, for messages. */
  readonly label: string
  send(args: readonly string[]): Promise<unknown>
}

/** A connection of our own to one server, which does not come back by itself when it is lost. */
export interface RawConnection extends RawNode {
  /** False once it is lost. */
  isOpen(): boolean
  close(): void
}

/** A connection of our own for messages, which does not come back by itself when it is lost. */
export interface RawSubscriber {
  /** Resolves when the server has confirmed it. */
  subscribe(channel: string, listener: (message: string) => void): Promise<void>
  unsubscribe(channel: string): Promise<void>
  /** Called once, when messages may have been missed. */
  onLost(lost: () => void): void
  close(): void
}

export interface RawRedis {
  readonly library: 'ioredis' | 'node-redis'
  readonly isCluster: boolean
  /** Where the client was told to connect to: host, port and database, or the group of Sentinel; `UNKNOWN_ADDRESS`. */
  readonly address: string
  /** The prefix that the client puts in front of every key. */
  readonly keyPrefix: string
  /** True if commands of one turn of the event loop leave in one write, at the end of the turn. */
  readonly writesOncePerTurn: boolean
  /** The client forgets the commands in flight when its connection closes: their promises never settle. */
  readonly forgetsUnanswered?: boolean
  /** The database that the client was told to use, where it may be in another: the server has none of that number, or SELECT. */
  readonly database?: number
  /** False when the client would refuse every command at once: it was closed, or never connected. */
  readonly isUsable: boolean
  /** `EVALSHA` or `EVAL`, sent to the server that has the keys (given without the prefix). */
  evaluate(
    command: 'EVALSHA' | 'EVAL',
    script: string,
    keys: readonly string[],
    args: readonly string[],
  ): Promise<unknown>
  /**
   * Answered as soon as the client is connected. Missing where an error of the client does not mean that it could not
   * connect: it may be about one of several addresses.
   */
  ping?(): Promise<unknown>
  /** All primaries: one, or those of the Cluster. */
  primaries(): Promise<readonly RawNode[]>
  /** Which primary has this key (given without the prefix) now, as far as the client knows; the same text for the same one. */
  ownerOf(key: string): string
  /** A connection to the primary that has this key (given without the prefix). If `stop` aborts before, there is none. */
  dedicated(key: string, stop: AbortSignal): Promise<RawConnection>
  subscriber(stop: AbortSignal): Promise<RawSubscriber>
}

/** The whole command; keys are given without the prefix. */
export function evaluation(
  command: string,
  script: string,
  keyPrefix: string,
  keys: readonly string[],
  args: readonly string[],
): string[] {
  const prefixed = keyPrefix === '' ? keys : keys.map((key) => keyPrefix + key)
  return [command, script, String(keys.length), ...prefixed, ...args]
}
