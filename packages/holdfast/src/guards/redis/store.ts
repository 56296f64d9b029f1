/** The guard's memory, and the one script that changes it together with an effect. */

import type { Clock } from '../../base/clock.ts'
import type { RedisConnection, RedisReply, RedisScript } from '../../clients/redis/index.ts'
import type { CheckedProof } from '../proofs.ts'
import type { CallLimit, EffectConnections } from './effect-connections.ts'
import { type FactMemory, Facts, type Field, fieldsOf } from './facts.ts'
import { compileErrorOf, failureOfEffect, unreadable } from './failures.ts'
import type { GuardKeys } from './layout.ts'
import { forgetScript, outcomes, readScript, recallScript } from './scripts.ts'

export interface Effect {
  readonly script: RedisScript
  readonly keys: readonly string[]
  readonly args: readonly string[]
  /** What is to blame when it raises an error: an argument of the user's, and what was asked of it. */
  readonly blame: { readonly argument: string; readonly what: string }
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
  readonly #effects: EffectConnections
  readonly #keys: GuardKeys
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #scripts = new Map<string, RedisScript>()

  constructor(
    connection: RedisConnection,
    effects: EffectConnections,
    keys: GuardKeys,
    clock: Clock,
    timeoutMs: number,
  ) {
    this.#connection = connection
    this.#effects = effects
    this.#keys = keys
    this.#clock = clock
    this.#timeoutMs = timeoutMs
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
    if (Array.isArray(reply)) throw unreadable(key, String(reply[0]))
    return reply === null ? null : String(reply)
  }

  /** Repeats itself until there is nothing left to forget, so that no call holds the server up for long. */
  async forget(untouchedForMs: number): Promise<number> {
    const { names, touched, issuers } = this.#keys
    // The wall clock, because the guard outlives processes and machines. A stepped one forgets too early or too late:
    // both are safe, because the floor takes the place of what was forgotten.
    const untilMs = Math.round(this.#clock.wallMs() - untouchedForMs)
    for (let all = 0; ; ) {
      const args = [String(untilMs), String(FORGOTTEN_AT_ONCE)]
      const forgotten = Number(await this.#run(forgetScript, [names, touched, issuers], args))
      all += forgotten
      if (forgotten < FORGOTTEN_AT_ONCE) return all
    }
  }

  /** Applies the decision in `memory` and the effect, if `facts` are still so. Sent once, whatever becomes of it. */
  async apply(facts: Facts, memory: FactMemory, effect: Effect): Promise<Outcome> {
    const { names, touched, issuers } = this.#keys
    const numberOf = ({ hash }: Field) => (hash === 'names' ? '1' : '3')
    const compared = facts.entries
    const { changes } = memory
    const header = [
      String(Math.round(this.#clock.wallMs())),
      String(compared.length),
      String(changes.length),
      String(memory.touched.length),
      ...[...compared, ...changes].flatMap(({ field, text }) => [numberOf(field), field.field, text]),
      ...memory.touched,
    ]
    const args = [...header, ...effect.args]
    const sending = this.#within((limit) =>
      this.#effects.run(effect.script, [names, touched, issuers, ...effect.keys], args, limit),
    )
    const reply = await sending.catch((error: unknown) => {
      throw compileErrorOf(error, effect.blame.argument) ?? error
    })
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
        throw failureOfEffect(effect.blame, String(rest[0]))
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

  #run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<RedisReply> {
    return this.#within(({ signal }) => this.#connection.run(script, keys, args, signal))
  }

  async #within<T>(call: (limit: CallLimit) => Promise<T>): Promise<T> {
    const clock = this.#clock
    const limit = new AbortController()
    const timer = clock.setTimer(
      this.#timeoutMs,
      () => limit.abort(new Error(`no answer within ${this.#timeoutMs} ms`)),
      { keepsProcessAlive: true },
    )
    const deadlineMs = clock.monotonicMs() + this.#timeoutMs
    try {
      return await call({ clock, deadlineMs, signal: limit.signal })
    } finally {
      timer.cancel()
    }
  }
}
