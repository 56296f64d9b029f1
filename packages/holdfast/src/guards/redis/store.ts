/** The guard's memory, and the one script that changes it together with an effect. */
import type { RedisConnection, RedisReply, RedisScript } from '../../clients/redis/index.ts'
import type { Clock } from '../../core/clock.ts'
import { BackendUnavailableError } from '../../core/errors.ts'
import { type Random, systemRandom } from '../../core/ids.ts'
import type { CheckedProof } from '../proofs.ts'
import { type FactMemory, Facts, type Field, fieldsOf } from './facts.ts'
import type { GuardKeys } from './layout.ts'
import { forgetScript, outcomes, readScript, recallScript } from './scripts.ts'

export interface Effect {
  readonly script: RedisScript
  readonly keys: readonly string[]
  readonly args: readonly string[]
  /** Whether its answer is needed: one that got lost cannot be had again. */
  readonly hasResult: boolean
}

export type Outcome =
  | { readonly kind: 'applied'; readonly result: RedisReply }
  /** Somebody was quicker: what is there now. */
  | { readonly kind: 'facts-differ'; readonly facts: Facts }
  /** What the effect needs is not so: the key that it is about. */
  | { readonly kind: 'before-differs'; readonly key: string }

const FORGOTTEN_AT_ONCE = 500
const MOST_SCRIPTS = 1_000

export class GuardStore {
  readonly #connection: RedisConnection
  readonly #keys: GuardKeys
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #random: Random
  readonly #scripts = new Map<string, RedisScript>()

  constructor(
    connection: RedisConnection,
    keys: GuardKeys,
    clock: Clock,
    timeoutMs: number,
    random = systemRandom,
  ) {
    this.#connection = connection
    this.#keys = keys
    this.#clock = clock
    this.#timeoutMs = timeoutMs
    this.#random = random
  }

  recall(proofs: readonly CheckedProof[]): Promise<Facts> {
    return this.recallFields(fieldsOf(proofs))
  }

  async recallFields(fields: readonly Field[]): Promise<Facts> {
    const { names, issuers } = this.#keys
    const args = fields.flatMap(({ hash, field }) => [hash === 'names' ? '1' : '2', field])
    const texts = (await this.#run(recallScript, [names, issuers], args)) as readonly RedisReply[]
    return new Facts(fields.map((field, index) => ({ field, text: String(texts[index] ?? '') })))
  }

  async read(key: string): Promise<string | null> {
    const reply = await this.#run(readScript, [key], [])
    return reply === null ? null : String(reply)
  }

  /** Repeats itself until there is nothing left to forget, so that no call holds the server up for long. */
  async forget(untouchedForMs: number): Promise<number> {
    const { names, touched, issuers, applied } = this.#keys
    // The wall clock, because the guard outlives processes and machines. A stepped one forgets too early or too late:
    // both are safe, because the floor takes the place of what was forgotten.
    const untilMs = Math.round(this.#clock.wallMs() - untouchedForMs)
    for (let all = 0; ; ) {
      const args = [String(untilMs), String(FORGOTTEN_AT_ONCE)]
      const forgotten = Number(await this.#run(forgetScript, [names, touched, issuers, applied], args))
      all += forgotten
      if (forgotten < FORGOTTEN_AT_ONCE) return all
    }
  }

  /** Applies the decision in `memory` and the effect, if `facts` are still so. */
  async apply(facts: Facts, memory: FactMemory, { script, keys, args, hasResult }: Effect): Promise<Outcome> {
    const { names, touched, issuers, applied } = this.#keys
    const numberOf = ({ hash }: Field) => (hash === 'names' ? '1' : '3')
    const compared = facts.entries
    const { changes } = memory
    const header = [
      this.#random.id(),
      String(Math.round(this.#clock.wallMs())),
      String(compared.length),
      String(changes.length),
      String(memory.touched.length),
      ...[...compared, ...changes].flatMap(({ field, text }) => [numberOf(field), field.field, text]),
      ...memory.touched,
    ]
    const reply = await this.#run(script, [names, touched, issuers, applied, ...keys], [...header, ...args])
    const [outcome, ...rest] = reply as readonly RedisReply[]
    switch (Number(outcome)) {
      case outcomes.applied:
        return { kind: 'applied', result: rest[0] ?? null }
      case outcomes.beforeDiffers:
        return { kind: 'before-differs', key: this.#withoutPrefix(String(rest[0])) }
      case outcomes.factsDiffer:
        return {
          kind: 'facts-differ',
          facts: new Facts(compared.map(({ field }, index) => ({ field, text: String(rest[index] ?? '') }))),
        }
      default:
        // The client has sent it twice, and the answer to the first went lost with its connection.
        if (!hasResult) return { kind: 'applied', result: null }
        throw new BackendUnavailableError(
          'redis',
          'the effect was applied, but its answer was lost',
          'unknown',
        )
    }
  }

  /** A script for the text of an effect, made once. */
  scriptOf(source: string, make: (source: string) => RedisScript): RedisScript {
    let script = this.#scripts.get(source)
    if (script === undefined) {
      // Texts that never come again would fill the memory.
      if (this.#scripts.size >= MOST_SCRIPTS) this.#scripts.clear()
      script = make(source)
      this.#scripts.set(source, script)
    }
    return script
  }

  #withoutPrefix(key: string): string {
    return key.slice(this.#connection.keyPrefix.length)
  }

  async #run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<RedisReply> {
    const limit = new AbortController()
    const timer = this.#clock.setTimer(
      this.#timeoutMs,
      () => limit.abort(new Error(`no answer within ${this.#timeoutMs} ms`)),
      { keepsProcessAlive: true },
    )
    try {
      return await this.#connection.run(script, keys, args, limit.signal)
    } finally {
      timer.cancel()
    }
  }
}
