/** The guard's memory, and the one script that changes it together with an effect. */

import type { Clock } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { type Random, systemRandom } from '../../base/ids.ts'
import type { RedisConnection, RedisReply, RedisScript } from '../../clients/redis/index.ts'
import type { CheckedProof } from '../proofs.ts'
import { type Call, Calls, SERIES_KEPT_MS } from './calls.ts'
import { type FactMemory, Facts, type Field, fieldsOf } from './facts.ts'
import { compileErrorOf, failureOfEffect, unreadable } from './failures.ts'
import type { GuardKeys } from './layout.ts'
import { forgetScript, openScript, outcomes, readScript, recallScript } from './scripts.ts'

export interface Effect {
  readonly script: RedisScript
  readonly keys: readonly string[]
  readonly args: readonly string[]
  /** Whether its answer is needed: one that got lost cannot be had again. */
  readonly hasResult: boolean
  /** What is to blame when it raises an error: an argument of the user's, and what was asked of it. */
  readonly blame: { readonly argument: string; readonly what: string }
}

export type Outcome =
  | { readonly kind: 'applied'; readonly result: RedisReply }
  /** Somebody was quicker: what is there now. */
  | { readonly kind: 'facts-differ'; readonly facts: Facts }
  /** What the effect needs is not so: the key that it is about, unless the answer with it was lost. */
  | { readonly kind: 'before-differs'; readonly key: string | null }

const FORGOTTEN_AT_ONCE = 500
const CLOSED_AT_ONCE = 10
const MOST_SCRIPTS = 1_000

export class GuardStore {
  readonly #connection: RedisConnection
  readonly #keys: GuardKeys
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #calls: Calls
  readonly #scripts = new Map<string, RedisScript>()

  constructor(
    connection: RedisConnection,
    keys: GuardKeys,
    clock: Clock,
    timeoutMs: number,
    random: Random = systemRandom,
  ) {
    this.#connection = connection
    this.#keys = keys
    this.#clock = clock
    this.#timeoutMs = timeoutMs
    this.#calls = new Calls(async () => {
      const args = [random.id(), String(SERIES_KEPT_MS), String(CLOSED_AT_ONCE)]
      return String(await this.#run(openScript, [keys.calls, keys.series], args))
    }, clock)
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

  /** Makes `apply` one round trip; to be sent together with a `recall`. */
  async prepare(): Promise<void> {
    await this.#calls.prepare()
  }

  /** Applies the decision in `memory` and the effect, if `facts` are still so. */
  async apply(facts: Facts, memory: FactMemory, effect: Effect): Promise<Outcome> {
    for (;;) {
      const call = await this.#calls.begin()
      try {
        const outcome = await this.#applyOnce(call, facts, memory, effect)
        if (outcome !== null) return outcome
      } finally {
        call.settle()
      }
    }
  }

  /** Null if the server has lost what it knew of this guard's calls, and with it whatever an earlier copy has done. */
  async #applyOnce(call: Call, facts: Facts, memory: FactMemory, effect: Effect): Promise<Outcome | null> {
    const { names, touched, issuers, calls } = this.#keys
    const numberOf = ({ hash }: Field) => (hash === 'names' ? '1' : '3')
    const compared = facts.entries
    const { changes } = memory
    const header = [
      call.series,
      String(call.number),
      String(call.lowest),
      String(Math.round(this.#clock.wallMs())),
      String(compared.length),
      String(changes.length),
      String(memory.touched.length),
      ...[...compared, ...changes].flatMap(({ field, text }) => [numberOf(field), field.field, text]),
      ...memory.touched,
    ]
    const keys = [names, touched, issuers, calls, ...effect.keys]
    const reply = await this.#run(effect.script, keys, [...header, ...effect.args]).catch(
      (error: unknown) => {
        throw compileErrorOf(error, effect.blame.argument) ?? error
      },
    )
    const [outcome, ...rest] = reply as readonly RedisReply[]
    switch (Number(outcome)) {
      case outcomes.applied:
        return { kind: 'applied', result: rest[0] ?? null }
      case outcomes.beforeDiffers:
        return {
          kind: 'before-differs',
          key: rest[0] === undefined ? null : this.#withoutPrefix(String(rest[0])),
        }
      case outcomes.factsDiffer:
        return {
          kind: 'facts-differ',
          facts: new Facts(compared.map(({ field }, index) => ({ field, text: String(rest[index] ?? '') }))),
        }
      case outcomes.effectFailed:
        if (rest[0] === undefined) throw unknown('the effect has raised an error, but what it said was lost')
        throw failureOfEffect(effect.blame, String(rest[0]))
      case outcomes.seriesUnknown:
        this.#calls.leave(call.series)
        return null
      case outcomes.appliedBefore:
        // The client has sent it twice, and the answer to the first went lost with its connection.
        if (!effect.hasResult) return { kind: 'applied', result: null }
        throw unknown('the effect was applied, but its answer was lost')
      default:
        this.#calls.leave(call.series)
        throw unknown('the call came so late that the server cannot tell whether it had come before')
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

function unknown(what: string): BackendUnavailableError {
  return new BackendUnavailableError('redis', what, 'unknown')
}
