/**
 * The guard itself: proofs are checked, decided on what was read of the memory, and applied with the effect by one script.
 *
 *   recall ──▶ decide ──refused──▶ thrown
 *              decide ──passes──▶ script ──facts differ──▶ decide
 *                                 script ──applied──▶ done
 */

import { limits } from '../../../base/defaults.ts'
import { InvalidArgumentError, quote } from '../../../base/errors.ts'
import type { Fence } from '../../../base/fence.ts'
import { checkText } from '../../../base/names.ts'
import { checkKnownOptions } from '../../../base/options.ts'
import { SerialQueue } from '../../../base/serial-queue.ts'
import { announceAccepted, decide } from '../../../guards/checkpoint.ts'
import type { Proof, RunOptions } from '../../../guards/guard.ts'
import { type Entry, GuardBase } from '../../../guards/guard-base.ts'
import { checkEffect } from '../../../guards/proofs.ts'
import type { Remembered } from '../../../guards/rule.ts'
import type { GuardSettings } from '../../../guards/settings.ts'
import { hashTagOf, type RedisConnection, type RedisReply, slotOf } from '../client/index.ts'
import type { EffectConnections } from './effect-connections.ts'
import { Facts, fieldsOf } from './facts.ts'
import { guardKeys } from './layout.ts'
import type { EvaluateOptions, RedisGuard } from './redis-guard.ts'
import { helpers, transactionScript } from './scripts.ts'
import { type Effect, GuardStore } from './store.ts'
import {
  checkAmount,
  checkTtl,
  checkValue,
  RedisTransaction,
  type RedisTx,
  type TransactionHost,
} from './transaction.ts'

type Proofs = Proof | readonly Proof[]

export class ScriptGuard extends GuardBase<RedisTx> implements RedisGuard, TransactionHost {
  readonly #connection: RedisConnection
  readonly #tag: string
  readonly #store: GuardStore
  readonly #queue = new SerialQueue()
  /** Entries of transactions that are open, and the facts on which each was let in. */
  readonly #entered = new WeakMap<RedisTx, { readonly entries: readonly Entry[]; readonly facts: Facts }>()
  /** The facts at which a fence has passed: as long as they are there, the fence passes again. */
  readonly #passed = new WeakMap<Fence, Facts>()

  constructor(
    connection: RedisConnection,
    effects: EffectConnections,
    settings: GuardSettings,
    tag: string,
    callTimeoutMs: number,
  ) {
    super(settings)
    this.#connection = connection
    this.#tag = tag
    const keys = guardKeys(tag, settings.name)
    this.#store = new GuardStore(connection, effects, keys, settings.clock, callTimeoutMs)
  }

  transaction<T>(body: (tx: RedisTx) => Promise<T> | T): Promise<T> {
    checkEffect(body)
    return this.#transact(body, undefined)
  }

  async evaluate(proof: Proofs, source: string, options: EvaluateOptions = {}): Promise<RedisReply> {
    checkKnownOptions('options', options, ['keys', 'args', 'once', 'signal'])
    if (typeof source !== 'string' || source.trim() === '')
      throw new InvalidArgumentError('source', 'must be the text of a Lua script.')
    const { keys = [], args = [], ...rest } = options
    const script = this.#store.scriptOf(source)
    const blame = { argument: 'source', what: 'raised an error' }
    return this.#apply(proof, { script, keys, args: args.map(checkArgument), blame }, rest)
  }

  async get(proof: Proofs, key: string, options?: RunOptions): Promise<string | null> {
    const blame = { argument: 'key', what: `${quote(key)} cannot be read as text` }
    const effect = { script: helpers.get, keys: [key], args: [], blame }
    const reply = await this.#apply(proof, effect, options)
    return reply === null ? null : String(reply)
  }

  async set(
    proof: Proofs,
    key: string,
    value: string,
    options: RunOptions & { readonly ttlMs?: number } = {},
  ): Promise<void> {
    checkKnownOptions('options', options, ['ttlMs', 'once', 'signal'])
    const { ttlMs, ...rest } = options
    const args = [checkValue(value), String(checkTtl(ttlMs) ?? '')]
    const blame = { argument: 'key', what: `${quote(key)} cannot be set` }
    await this.#apply(proof, { script: helpers.set, keys: [key], args, blame }, rest)
  }

  async increment(
    proof: Proofs,
    key: string,
    by: number | bigint = 1,
    options?: RunOptions,
  ): Promise<bigint> {
    const args = [String(checkAmount(by))]
    const blame = { argument: 'key', what: `${quote(key)} cannot be incremented by ${by}` }
    const effect = { script: helpers.increment, keys: [key], args, blame }
    return BigInt(String(await this.#apply(proof, effect, options)))
  }

  async delete(proof: Proofs, keys: string | readonly string[], options?: RunOptions): Promise<number> {
    const all = [keys].flat()
    if (all.length === 0) throw new InvalidArgumentError('keys', 'must not be an empty list.')
    const blame = { argument: 'keys', what: 'cannot be deleted' }
    return Number(await this.#apply(proof, { script: helpers.delete, keys: all, args: [], blame }, options))
  }

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

  protected runEntered<T>(
    entry: Entry,
    effect: (tx: RedisTx) => Promise<T> | T,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    return this.#transact(async (tx) => {
      await this.#forgetIfDue()
      await this.enterIn(tx, entry)
      return effect(tx)
    }, signal)
  }

  /** Refuses now what would be refused at the end, so that a stale holder does not even read. */
  protected async enterIn(tx: RedisTx, entry: Entry): Promise<void> {
    if (!(tx instanceof RedisTransaction) || tx.host !== this)
      throw new InvalidArgumentError(
        'tx',
        'must be a transaction of this guard: guard.transaction((tx) => …).',
      )
    if (!tx.isOpen) throw new InvalidArgumentError('tx', 'belongs to a transaction that is over.')
    const entries = [...(this.#entered.get(tx)?.entries ?? []), entry]
    const facts = await this.#recallFor(entries)
    this.#decide(entries, facts)
    this.#entered.set(tx, { entries, facts })
  }

  protected async recall(name: string): Promise<Remembered | null> {
    return (await this.#store.recall([{ hash: 'names', field: name }])).recall(name)
  }

  protected forget(untouchedForMs: number): Promise<number> {
    return this.#store.forget(untouchedForMs)
  }

  /** A passed fence is announced when the effect has been applied, not here. */
  protected override announce(): void {}

  /** One effect in one script. */
  async #apply(proof: Proofs, effect: Effect, options: RunOptions | undefined): Promise<RedisReply> {
    const keys = effect.keys.map((key) => this.checkKey(key))
    const { signal, ...entry } = this.checkEntry(proof, options)
    signal?.throwIfAborted()
    await this.#forgetIfDue()
    const [first, ...others] = entry.proofs
    const fence = entry.once || others.length > 0 ? undefined : first?.fence
    const facts = (fence && this.#passed.get(fence)) ?? (await this.#recallFor([entry]))
    const { result, after } = await this.#commit([entry], { ...effect, keys }, signal, facts)
    if (fence !== undefined) this.#passed.set(fence, after)
    return result
  }

  #transact<T>(body: (tx: RedisTransaction) => Promise<T> | T, signal: AbortSignal | undefined): Promise<T> {
    return this.#queue.run(
      async () => {
        const tx = new RedisTransaction(this)
        try {
          const result = await body(tx)
          signal?.throwIfAborted()
          const { entries, facts } = this.#entered.get(tx) ?? { entries: [], facts: new Facts([]) }
          const { keys, args } = tx.script
          const blame = { argument: 'tx', what: 'cannot be applied' }
          if (entries.length > 0 || keys.length > 0)
            await this.#commit(entries, { script: transactionScript, keys, args, blame }, signal, facts)
          return result
        } finally {
          tx.end()
        }
      },
      { signal },
    )
  }

  async #commit(
    entries: readonly Entry[],
    effect: Effect,
    signal: AbortSignal | undefined,
    facts: Facts,
  ): Promise<{ readonly result: RedisReply; readonly after: Facts }> {
    for (let before = facts; ; ) {
      const after = this.#decide(entries, before)
      signal?.throwIfAborted()
      const outcome = await this.#store.apply(before, after, effect)
      if (outcome.kind === 'applied') {
        for (const { proofs } of entries) announceAccepted(this.name, proofs)
        return { result: outcome.result, after }
      }
      before = outcome.facts
    }
  }

  #recallFor(entries: readonly Entry[]): Promise<Facts> {
    return this.#store.recall(fieldsOf(entries.flatMap(({ proofs }) => proofs)))
  }

  #decide(entries: readonly Entry[], facts: Facts): Facts {
    return entries.reduce(
      (after, { proofs, once }) => after.after(decide(after, this.settings, proofs, once)),
      facts,
    )
  }

  async #forgetIfDue(): Promise<void> {
    if (this.isForgettingDue()) await this.#store.forget(this.settings.forgetAfterMs)
  }
}

function checkArgument(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'bigint' || (typeof value === 'number' && Number.isFinite(value))) return String(value)
  throw new InvalidArgumentError('args', 'must be strings or numbers.')
}
