/**
 * A guard for what lives in Redis. Fences are checked and remembered in the same script as the effect, in keys of the
 * guard's own on the same server, so the guard forgets nothing that the data remembers.
 *
 * ```ts
 * import { Redis } from 'ioredis'
 * import { redisGuard } from 'holdfast/guards/redis'
 *
 * const guard = redisGuard({ client: new Redis() })
 *
 * await guard.set(lease, 'account:42', '100')
 * await guard.evaluate(lease, "return redis.call('HINCRBY', KEYS[1], 'balance', ARGV[1])", {
 *   keys: ['accounts'],
 *   args: ['-10'],
 * })
 * await guard.run(lease, async (tx) => {
 *   const balance = Number(await tx.get('account:42'))
 *   tx.set('account:42', String(balance - 10))
 * })
 * ```
 *
 * On a Cluster everything that one guard protects lies in one slot: keys must have the hash tag of the guard.
 */

import type { Clock } from '../../../base/clock.ts'
import { defaults, limits } from '../../../base/defaults.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import { checkText } from '../../../base/names.ts'
import { checkInteger } from '../../../base/options.ts'
import type { Guard, GuardOptions, Proof, RunOptions } from '../../../guards/guard.ts'
import { checkGuardOptions } from '../../../guards/settings.ts'
import { checkClientOptions, type RedisClient, RedisConnection, type RedisReply } from '../client/index.ts'
import { effectConnectionsOf } from './effect-connections.ts'
import { ScriptGuard } from './script-guard.ts'
import type { RedisTx } from './transaction.ts'

export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from '../../../guards/guard.ts'
export type { IoRedisClient, NodeRedisClient, RedisClient, RedisReply } from '../client/index.ts'
export type { RedisTx } from './transaction.ts'

export interface RedisGuardOptions extends GuardOptions {
  /** A client of ioredis (5 or 6) or node-redis (5 or 6), connected to the server that has the protected data. */
  readonly client: RedisClient
  /**
   * The hash tag of everything that this guard protects: on a Cluster, keys without it are refused. Elsewhere keys are
   * free. Default: the name of the guard.
   */
  readonly tag?: string
  /** How long the server may take to answer before the outcome counts as unknown. Default 5,000. It is not applied later. */
  readonly callTimeoutMs?: number
  readonly clock?: Clock
}

export interface EvaluateOptions extends RunOptions {
  readonly keys?: readonly string[]
  readonly args?: readonly (string | number | bigint)[]
}

export interface RedisGuard extends Guard<RedisTx> {
  /**
   * The check and your own Lua in one script: one round trip for a lease that has been here before. Your source is the
   * body of a function with its own `KEYS` and `ARGV`. Keep it constant and hand in what varies: every text is another
   * script that the server keeps.
   *
   * As always in Redis, a script that raises an error does not undo what it has written before.
   *
   * @throws InvalidArgumentError   `source` does not compile, has raised an error, or has returned one
   */
  evaluate(proof: Proof | readonly Proof[], source: string, options?: EvaluateOptions): Promise<RedisReply>
  get(proof: Proof | readonly Proof[], key: string, options?: RunOptions): Promise<string | null>
  set(
    proof: Proof | readonly Proof[],
    key: string,
    value: string,
    options?: RunOptions & { readonly ttlMs?: number },
  ): Promise<void>
  /** Answers with the new value. */
  increment(
    proof: Proof | readonly Proof[],
    key: string,
    by?: number | bigint,
    options?: RunOptions,
  ): Promise<bigint>
  /** Answers how many there were. */
  delete(
    proof: Proof | readonly Proof[],
    keys: string | readonly string[],
    options?: RunOptions,
  ): Promise<number>
  /**
   * Reads and writes that are applied together or not at all, without a proof of its own: for `enter`.
   *
   * @throws ConflictError   what was read has been changed meanwhile
   */
  transaction<T>(body: (tx: RedisTx) => Promise<T> | T): Promise<T>
}

export function redisGuard(options: RedisGuardOptions): RedisGuard {
  checkClientOptions('guard options', options)
  const settings = checkGuardOptions(options, ['client', 'tag', 'callTimeoutMs'])
  const tag = checkText('tag', options.tag ?? settings.name, limits.nameBytes)
  if (/[{}]/.test(tag)) throw new InvalidArgumentError('tag', 'must not contain braces.')
  const callTimeoutMs = checkInteger('callTimeoutMs', options.callTimeoutMs ?? defaults.callTimeoutMs, {
    min: 1,
  })
  const connection = new RedisConnection(options.client, { backend: 'redis', clock: settings.clock })
  const effects = effectConnectionsOf(options.client, settings.clock, connection)
  return new ScriptGuard(connection, effects, settings, tag, callTimeoutMs)
}
