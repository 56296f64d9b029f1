/** The base of all guards: they check what callers hand in, and announce the proofs that passed. */
import type { Fence } from '../base/fence.ts'
import { checkName } from '../base/names.ts'
import { announceAccepted } from './checkpoint.ts'
import type { EnterOptions, Guard, Proof, RunOptions } from './guard.ts'
import { assertHeld, type CheckedProof, checkEffect, checkProofs } from './proofs.ts'
import type { Remembered } from './rule.ts'
import { checkEnterOptions, checkPruneOptions, checkRunOptions, type GuardSettings } from './settings.ts'

/** Proofs that are to pass together. */
export interface Entry {
  readonly proofs: readonly CheckedProof[]
  readonly once: boolean
}

const LONGEST_TIDYING_INTERVAL_MS = 3_600_000

export abstract class GuardBase<Tx> implements Guard<Tx> {
  protected readonly settings: GuardSettings
  #tidiedAtMs = Number.NEGATIVE_INFINITY

  constructor(settings: GuardSettings) {
    this.settings = settings
  }

  get name(): string {
    return this.settings.name
  }

  async run<T>(
    proof: Proof | readonly Proof[],
    effect: (tx: Tx) => Promise<T> | T,
    options?: RunOptions,
  ): Promise<T> {
    const { signal, ...entry } = this.checkEntry(proof, options)
    checkEffect(effect)
    const result = await this.runEntered(entry, effect, signal)
    this.announce(entry.proofs)
    return result
  }

  async enter(tx: Tx, proof: Proof | readonly Proof[], options?: EnterOptions): Promise<void> {
    const { once } = checkEnterOptions(options)
    const proofs = checkProofs(proof, once)
    await this.enterIn(tx, { proofs, once })
    this.announce(proofs)
  }

  async highest(name: string): Promise<Fence | null> {
    return (await this.recall(checkName(name)))?.highest ?? null
  }

  async prune(options: { readonly untouchedForMs: number }): Promise<number> {
    return this.forget(checkPruneOptions(options))
  }

  /** One transaction: the entry passes, then the effect runs. */
  protected abstract runEntered<T>(
    entry: Entry,
    effect: (tx: Tx) => Promise<T> | T,
    signal: AbortSignal | undefined,
  ): Promise<T>

  /** Runs in a transaction of the user's. */
  protected abstract enterIn(tx: Tx, entry: Entry): Promise<void>

  protected abstract recall(name: string): Promise<Remembered | null>

  protected abstract forget(untouchedForMs: number): Promise<number>

  protected announce(proofs: readonly CheckedProof[]): void {
    announceAccepted(this.name, proofs)
  }

  protected checkEntry(proof: Proof | readonly Proof[], options: RunOptions | undefined) {
    const { once, signal } = checkRunOptions(options)
    const proofs = checkProofs(proof, once)
    assertHeld(proofs, this.name)
    return { proofs, once, signal }
  }

  /** True at the first run, and then at most once an hour: guards tidy up as part of a run, without a timer. */
  protected isTidyingDue(): boolean {
    const { forgetAfterMs, clock } = this.settings
    const nowMs = clock.monotonicMs()
    if (nowMs - this.#tidiedAtMs < Math.min(forgetAfterMs, LONGEST_TIDYING_INTERVAL_MS)) return false
    this.#tidiedAtMs = nowMs
    return true
  }

  protected isForgettingDue(): boolean {
    return this.settings.forgetAfterMs !== Number.POSITIVE_INFINITY && this.isTidyingDue()
  }
}
