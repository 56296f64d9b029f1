/**
 * A guard for what lives in etcd: one key for each name has the mark, and a transaction compares it and does the effect.
 *
 * ```ts
 * import { etcdGuard } from 'holdfast/guards/etcd'
 *
 * const guard = etcdGuard({ hosts: ['http://10.0.0.1:2379'] })
 *
 * await guard.run(lease, async (tx) => {
 *   const units = Number(await tx.get('stock/42'))
 *   tx.put('stock/42', String(units - 1))
 * })
 * const { compare, puts } = await guard.step(lease)   // for a transaction of your own client
 * ```
 *
 * The tokens may be those of any engine. The lock's own key cannot be compared instead: a fence does not name it.
 */

import { callWith } from '../../../base/aborting.ts'
import { type Clock, systemClock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { ConflictError, InvalidArgumentError, outcomeOf, UnsupportedError } from '../../../base/errors.ts'
import { checkInteger } from '../../../base/options.ts'
import { SerialQueue } from '../../../base/serial-queue.ts'
import { withLimit } from '../../../base/within.ts'
import { announceAccepted, decide } from '../../../guards/checkpoint.ts'
import type { EnterOptions, Guard, GuardOptions, Proof } from '../../../guards/guard.ts'
import { type Entry, GuardBase } from '../../../guards/guard-base.ts'
import { checkEffect, checkProofs } from '../../../guards/proofs.ts'
import type { Remembered } from '../../../guards/rule.ts'
import { checkEnterOptions, checkGuardOptions, type GuardSettings } from '../../../guards/settings.ts'
import * as etcd from '../client/index.ts'
import { GuardKeys, Marks } from './marks.ts'
import { EtcdTransaction, type EtcdTx } from './transaction.ts'

export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from '../../../guards/guard.ts'
export type { EtcdClientOptions, EtcdTls } from '../client/index.ts'
export type { EtcdTx } from './transaction.ts'

export interface EtcdGuardOptions extends Omit<GuardOptions, 'forgetAfterMs'>, etcd.EtcdClientOptions {
  /** Prefix of the keys of all guards. Default `holdfast/guards/1/`: 1 is the version of the layout. */
  readonly prefix?: string
  /** How long etcd may take to answer before the outcome counts as unknown. Default 5,000. */
  readonly callTimeoutMs?: number
  readonly clock?: Clock
}

/** Keys and values are in base64, revisions are text: the JSON of etcd's HTTP gateway. */
export interface EtcdStep {
  readonly compare: readonly {
    readonly target: 'MOD'
    readonly result: 'EQUAL'
    readonly key: string
    readonly mod_revision: string
  }[]
  readonly puts: readonly { readonly request_put: { readonly key: string; readonly value: string } }[]
}

/** `prune` is `UNSUPPORTED`: a mark stays until you delete its key, and with it all that the guard knows of the name. */
export interface EtcdGuard extends Guard<EtcdTx>, AsyncDisposable {
  /**
   * Reads the marks and judges. The answer is for your own transaction: add `compare` to what it compares, and `puts` to what it
   * does. If it does not succeed, ask again: the fence may be stale by then.
   */
  step(proof: Proof | readonly Proof[], options?: EnterOptions): Promise<EtcdStep>
  /**
   * Reads and writes that are applied together or not at all, without a proof of its own: for `enter`.
   *
   * @throws ConflictError   what was read has been changed meanwhile
   */
  transaction<T>(body: (tx: EtcdTx) => Promise<T> | T): Promise<T>
  close(): Promise<void>
}

const BACKEND = 'etcd'
const ownOptions = ['hosts', 'tls', 'username', 'password', 'prefix', 'callTimeoutMs']

export function etcdGuard(options: EtcdGuardOptions): EtcdGuard {
  const settings = checkGuardOptions(options, ownOptions)
  if ('forgetAfterMs' in options)
    throw new InvalidArgumentError('forgetAfterMs', 'is not for etcd: a mark stays until its key is deleted.')
  return new TransactionGuard(settings, options)
}

class TransactionGuard extends GuardBase<EtcdTx> implements EtcdGuard {
  readonly #client: etcd.EtcdClient
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #keys: GuardKeys
  readonly #queue = new SerialQueue()
  /** Entries of transactions that are open, and the marks on which each was let in. */
  readonly #entered = new WeakMap<EtcdTx, { readonly entries: readonly Entry[]; readonly marks: Marks }>()

  constructor(settings: GuardSettings, options: EtcdGuardOptions) {
    super(settings)
    this.#clock = options.clock ?? systemClock
    this.#client = new etcd.EtcdClient(BACKEND, options, this.#clock)
    this.#timeoutMs = checkInteger('callTimeoutMs', options.callTimeoutMs ?? defaults.callTimeoutMs, {
      min: 1,
    })
    this.#keys = new GuardKeys(options.prefix, settings.name)
  }

  async step(proof: Proof | readonly Proof[], options?: EnterOptions): Promise<EtcdStep> {
    const { once } = checkEnterOptions(options)
    const entry = { proofs: checkProofs(proof, once), once }
    const before = await this.#read([entry])
    const { compares, puts } = this.#decide([entry], before).changesSince(before)
    announceAccepted(this.name, entry.proofs)
    const base64 = (text: string) => Buffer.from(text).toString('base64')
    return {
      compare: compares.map(({ key, revision }) => ({
        target: 'MOD',
        result: 'EQUAL',
        key: base64(key),
        mod_revision: String(revision),
      })),
      puts: puts.map(({ key, value }) => ({ request_put: { key: base64(key), value: base64(value) } })),
    }
  }

  transaction<T>(body: (tx: EtcdTx) => Promise<T> | T): Promise<T> {
    checkEffect(body)
    return this.#transact(body, undefined)
  }

  async close(): Promise<void> {
    this.#client.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  protected runEntered<T>(
    entry: Entry,
    effect: (tx: EtcdTx) => Promise<T> | T,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    return this.#transact(async (tx) => {
      await this.enterIn(tx, entry)
      return effect(tx)
    }, signal)
  }

  protected async enterIn(tx: EtcdTx, entry: Entry): Promise<void> {
    if (!(tx instanceof EtcdTransaction) || tx.owner !== this || !tx.isOpen)
      throw new InvalidArgumentError(
        'tx',
        'must be an open transaction of this guard: guard.transaction((tx) => …).',
      )
    const entries = [...(this.#entered.get(tx)?.entries ?? []), entry]
    const marks = await this.#read(entries, tx.signal)
    this.#decide(entries, marks)
    this.#entered.set(tx, { entries, marks })
  }

  protected async recall(name: string): Promise<Remembered | null> {
    const marks = new Marks(this.#keys, [name])
    return marks.with(etcd.kvsOf(await this.#ask(etcd.always(marks.reads)))).recall(name)
  }

  protected forget(): Promise<number> {
    throw new UnsupportedError('A mark in etcd stays until its key is deleted: nothing can be forgotten.')
  }

  /** A passed fence is announced when the effect has been applied, not here. */
  protected override announce(): void {}

  #transact<T>(body: (tx: EtcdTx) => Promise<T> | T, signal: AbortSignal | undefined): Promise<T> {
    return this.#queue.run(
      async () => {
        const tx = new EtcdTransaction(this, signal, async (key) =>
          etcd.kvsOf(await this.#ask(etcd.always([etcd.get(key)]), signal)).at(0),
        )
        try {
          const result = await body(tx)
          signal?.throwIfAborted()
          await this.#commit(tx, signal)
          return result
        } finally {
          tx.end()
        }
      },
      { signal },
    )
  }

  /** It is sent once for each state of the marks: a lost answer is an error. */
  async #commit(tx: EtcdTransaction, signal: AbortSignal | undefined): Promise<void> {
    const { entries, marks } = this.#entered.get(tx) ?? { entries: [], marks: new Marks(this.#keys, []) }
    for (let before = marks; ; ) {
      const { compares, puts } = this.#decide(entries, before).changesSince(before)
      signal?.throwIfAborted()
      const compare = [...compares, ...tx.reads].map(({ key, revision }) => etcd.written(key, revision))
      const success = [...puts.map(({ key, value }) => etcd.put(key, value)), ...tx.writes]
      if (compare.length === 0 && success.length === 0) return
      const { succeeded } = await this.#ask(etcd.onCondition(compare, success), signal)
      if (succeeded) {
        for (const { proofs } of entries) announceAccepted(this.name, proofs)
        return
      }
      const now = await this.#read(entries, signal)
      if (now.isSameAs(before))
        throw new ConflictError('A key that was read in the transaction has been changed.')
      before = now
    }
  }

  async #read(entries: readonly Entry[], signal?: AbortSignal): Promise<Marks> {
    const names = entries.flatMap(({ proofs }) => proofs.map(({ fence }) => fence.name))
    const marks = new Marks(this.#keys, names)
    if (names.length === 0) return marks
    return marks.with(etcd.kvsOf(await this.#ask(etcd.always(marks.reads), signal)))
  }

  #decide(entries: readonly Entry[], marks: Marks): Marks {
    return entries.reduce(
      (after, { proofs, once }) => after.after(decide(after, this.settings, proofs, once)),
      marks,
    )
  }

  /** A request that cannot have changed anything rejects with the reason of the signal. */
  async #ask(request: etcd.TxnRequest, signal?: AbortSignal): Promise<etcd.TxnResponse> {
    try {
      return await withLimit(
        this.#clock,
        this.#timeoutMs,
        (limit) => this.#client.ask(etcd.methods.txn, request, callWith(limit.signal)),
        { keepsProcessAlive: true, tie: (limit) => limit.follow(signal) },
      )
    } catch (error) {
      if (signal?.aborted && (etcd.isRead(request) || outcomeOf(error) !== 'unknown')) throw signal.reason
      throw error
    }
  }
}
