/**
 * The guard itself: proofs are checked, decided on what was read of the memory, and applied with the effect by one script.
 *
 *   recall ──▶ decide ──refused──▶ thrown
 *              decide ──passes──▶ script ──facts differ──▶ decide
 *                                 script ──applied──▶ done
 */

import { limits } from '../../base/defaults.ts'
import { ConflictError, InvalidArgumentError, quote } from '../../base/errors.ts'
import type { Fence } from '../../base/fence.ts'
import { checkName, checkText } from '../../base/names.ts'
import { checkKnownOptions } from '../../base/options.ts'
import { Turns } from '../../base/turns.ts'
import { hashTagOf, type RedisConnection, type RedisReply, slotOf } from '../../clients/redis/index.ts'
import { announceAccepted, pass } from '../checkpoint.ts'
import { Forgetting } from '../forgetting.ts'
import type { EnterOptions, Proof, RunOptions } from '../guard.ts'
import { assertHeld, type CheckedProof, checkEffect, checkProofs } from '../proofs.ts'
import type { EvaluateOptions, RedisGuard } from '../redis.ts'
import { checkEnterOptions, checkPruneOptions, checkRunOptions, type GuardSettings } from '../settings.ts'
import type { EffectConnections } from './effect-connections.ts'
import { FactMemory, type Facts } from './facts.ts'
import { guardKeys, parseRemembered } from './layout.ts'
import { framedEffect, helpers, transactionScript } from './scripts.ts'
import { type Effect, GuardStore } from './store.ts'
import {
  checkAmount,
  checkTtl,
  checkValue,
  RedisTransaction,
  type RedisTx,
  type TransactionHost,
} from './transaction.ts'

interface Entered {
  readonly proofs: readonly CheckedProof[]
  readonly once: boolean
}

export class ScriptGuard implements RedisGuard, TransactionHost {
  readonly #connection: RedisConnection
  readonly #settings: GuardSettings
  readonly #tag: string
  readonly #store: GuardStore
  readonly #forgetting: Forgetting
  readonly #turns = new Turns()
  /** What has been entered in transactions that are open. */
  readonly #entered = new WeakMap<RedisTransaction, Entered[]>()
  /** What was there when a fence had passed: as long as it is, the fence passes again. */
  readonly #passed = new WeakMap<Fence, Facts>()

  constructor(
    connection: RedisConnection,
    effects: EffectConnections,
    settings: GuardSettings,
    tag: string,
    callTimeoutMs: number,
  ) {
    this.#connection = connection
    this.#settings = settings
    this.#tag = tag
    const { name, clock } = settings
    this.#store = new GuardStore(connection, effects, guardKeys(tag, name), clock, callTimeoutMs)
    this.#forgetting = new Forgetting(settings)
  }

  get name(): string {
    return this.#settings.name
  }

  async run<T>(
    proof: Proof | readonly Proof[],
    effect: (tx: RedisTx) => Promise<T> | T,
    options?: RunOptions,
  ): Promise<T> {
    const { once, signal } = checkRunOptions(options)
    const proofs = checkProofs(proof, once)
    checkEffect(effect)
    assertHeld(proofs)
    return this.#transact(async (tx) => {
      await this.#forgetIfDue()
      await this.#enter(tx, { proofs, once })
      return effect(tx)
    }, signal)
  }

  async enter(tx: RedisTx, proof: Proof | readonly Proof[], options?: EnterOptions): Promise<void> {
    const { once } = checkEnterOptions(options)
    const proofs = checkProofs(proof, once)
    if (!(tx instanceof RedisTransaction) || tx.host !== this)
      throw new InvalidArgumentError(
        'tx',
        'must be a transaction of this guard: guard.transaction((tx) => …).',
      )
    if (!tx.isOpen) throw new InvalidArgumentError('tx', 'belongs to a transaction that is over.')
    await this.#enter(tx, { proofs, once })
  }

  transaction<T>(body: (tx: RedisTx) => Promise<T> | T): Promise<T> {
    checkEffect(body)
    return this.#transact(body, undefined)
  }

  async evaluate(
    proof: Proof | readonly Proof[],
    source: string,
    options: EvaluateOptions = {},
  ): Promise<RedisReply> {
    checkKnownOptions('options', options, ['keys', 'args', 'once', 'signal'])
    if (typeof source !== 'string' || source.trim() === '')
      throw new InvalidArgumentError('source', 'must be the text of a Lua script.')
    const { keys = [], args = [], ...rest } = options
    const effect = {
      script: this.#store.scriptOf(source, framedEffect),
      keys: keys.map((key) => this.checkKey(key)),
      args: args.map(checkArgument),
      blame: { argument: 'source', what: 'raised an error' },
    }
    return this.#apply(proof, effect, rest)
  }

  async get(proof: Proof | readonly Proof[], key: string, options?: RunOptions): Promise<string | null> {
    const reply = await this.#apply(
      proof,
      {
        script: helpers.get,
        keys: [this.checkKey(key)],
        args: [],
        blame: { argument: 'key', what: `${quote(key)} cannot be read as text` },
      },
      options,
    )
    return reply === null ? null : String(reply)
  }

  async set(
    proof: Proof | readonly Proof[],
    key: string,
    value: string,
    options: RunOptions & { readonly ttlMs?: number } = {},
  ): Promise<void> {
    checkKnownOptions('options', options, ['ttlMs', 'once', 'signal'])
    const { ttlMs, ...rest } = options
    const args = [checkValue(value), String(checkTtl(ttlMs) ?? '')]
    await this.#apply(
      proof,
      {
        script: helpers.set,
        keys: [this.checkKey(key)],
        args,
        blame: { argument: 'key', what: `${quote(key)} cannot be set` },
      },
      rest,
    )
  }

  async increment(
    proof: Proof | readonly Proof[],
    key: string,
    by: number | bigint = 1,
    options?: RunOptions,
  ): Promise<bigint> {
    const args = [String(checkAmount(by))]
    const effect = {
      script: helpers.increment,
      keys: [this.checkKey(key)],
      args,
      blame: { argument: 'key', what: `${quote(key)} cannot be incremented by ${by}` },
    }
    return BigInt(String(await this.#apply(proof, effect, options)))
  }

  async delete(
    proof: Proof | readonly Proof[],
    keys: string | readonly string[],
    options?: RunOptions,
  ): Promise<number> {
    const all = [keys].flat().map((key) => this.checkKey(key))
    if (all.length === 0) throw new InvalidArgumentError('keys', 'must not be an empty list.')
    const effect = {
      script: helpers.delete,
      keys: all,
      args: [],
      blame: { argument: 'keys', what: 'cannot be deleted' },
    }
    return Number(await this.#apply(proof, effect, options))
  }

  async highest(name: string): Promise<Fence | null> {
    const field = { hash: 'names', field: checkName(name) } as const
    const text = (await this.#store.recallFields([field])).get(field)
    return text === null ? null : parseRemembered(name, text).highest
  }

  async prune(options: { readonly untouchedForMs: number }): Promise<number> {
    return this.#store.forget(checkPruneOptions(options))
  }

  // --- what transactions ask for ---------------------------------------------------------------------------

  checkKey(key: unknown): string {
    const checked = checkText('key', key, limits.keyBytes)
    if (this.#connection.isCluster) {
      const { keyPrefix } = this.#connection
      if (slotOf(keyPrefix + checked) !== slotOf(keyPrefix + guardKeys(this.#tag, this.name).names))
        throw new InvalidArgumentError(
          'key',
          `${quote(checked)} lies in another slot of the Cluster than what the guard remembers, so check and effect could ` +
            `not be one step. Give it the hash tag of the guard, {${this.#tag}}, or make a guard with ` +
            `tag: ${quote(hashTagOf(checked) ?? checked)}.`,
        )
    }
    return checked
  }

  read(key: string): Promise<string | null> {
    return this.#store.read(key)
  }

  // --- how it is done --------------------------------------------------------------------------------------

  /** One effect in one script. */
  async #apply(
    proof: Proof | readonly Proof[],
    effect: Effect,
    options: RunOptions | undefined,
  ): Promise<RedisReply> {
    const { once, signal } = checkRunOptions(options)
    const proofs = checkProofs(proof, once)
    assertHeld(proofs)
    signal?.throwIfAborted()
    await this.#forgetIfDue()
    const [only, ...others] = proofs
    const known =
      only !== undefined && others.length === 0 && !once ? this.#passed.get(only.fence) : undefined
    const result = await this.#commit([{ proofs, once }], effect, signal, known)
    announceAccepted(this.name, proofs)
    return result
  }

  #transact<T>(body: (tx: RedisTransaction) => Promise<T> | T, signal: AbortSignal | undefined): Promise<T> {
    return this.#turns.take(async () => {
      const tx = new RedisTransaction(this)
      try {
        const result = await body(tx)
        signal?.throwIfAborted()
        const entered = this.#entered.get(tx) ?? []
        const { keys, args } = tx.script
        if (entered.length > 0 || keys.length > 0)
          await this.#commit(
            entered,
            {
              script: transactionScript,
              keys,
              args,
              blame: { argument: 'tx', what: 'cannot be applied' },
            },
            signal,
          )
        for (const { proofs } of entered) announceAccepted(this.name, proofs)
        return result
      } finally {
        tx.end()
      }
    }, signal)
  }

  /** Refuses now what would be refused at the end, so that a stale holder does not even read. */
  async #enter(tx: RedisTransaction, entry: Entered): Promise<void> {
    const before = this.#entered.get(tx) ?? []
    const entries = [...before, entry]
    const facts = await this.#store.recall(entries.flatMap(({ proofs }) => proofs))
    this.#decide(entries, facts)
    this.#entered.set(tx, entries)
  }

  #decide(entries: readonly Entered[], facts: Facts): FactMemory {
    const memory = new FactMemory(facts)
    for (const { proofs, once } of entries) pass(memory, this.#settings, proofs, once)
    return memory
  }

  async #commit(
    entries: readonly Entered[],
    effect: Effect,
    signal: AbortSignal | undefined,
    known?: Facts,
  ): Promise<RedisReply> {
    const proofs = entries.flatMap((entry) => entry.proofs)
    let facts = known ?? (await this.#store.recall(proofs))
    for (;;) {
      const memory = this.#decide(entries, facts)
      signal?.throwIfAborted()
      const outcome = await this.#store.apply(facts, memory, effect)
      if (outcome.kind === 'facts-differ') {
        facts = outcome.facts
        continue
      }
      if (outcome.kind === 'before-differs')
        throw new ConflictError(`${quote(outcome.key)} has been changed by another while it was used.`)
      const [only, ...others] = proofs
      if (only !== undefined && others.length === 0) this.#passed.set(only.fence, facts.with(memory.changes))
      return outcome.result
    }
  }

  async #forgetIfDue(): Promise<void> {
    if (this.#forgetting.isDue()) await this.#store.forget(this.#settings.forgetAfterMs)
  }
}

function checkArgument(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'bigint' || (typeof value === 'number' && Number.isFinite(value))) return String(value)
  throw new InvalidArgumentError('args', 'must be strings or numbers.')
}
