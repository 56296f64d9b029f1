/** The guard's memory, and the one script that changes it together with an effect. */

import type { Cancellation } from '../../../base/cancellation.ts'
import type { Clock } from '../../../base/clock.ts'
import { ConflictError, quote } from '../../../base/errors.ts'
import { withLimit } from '../../../base/within.ts'
import type { RedisConnection, RedisReply, RedisScript } from '../client/index.ts'
import type { CallLimit, EffectConnections } from './effect-connections.ts'
import { type Fact, Facts, type Field } from './facts.ts'
import { compileErrorOf, failureOfEffect, unreadable } from './failures.ts'
import type { GuardKeys } from './layout.ts'
import { forgetScript, framedEffect, outcomes, readScript, recallScript } from './scripts.ts'

export interface Effect {
  readonly script: RedisScript
  readonly keys: readonly string[]
  readonly args: readonly string[]
  /** The argument to blame when it raises an error, and what was asked of it. */
  readonly blame: { readonly argument: string; readonly what: string }
}

export type Outcome =
  | { readonly kind: 'applied'; readonly result: RedisReply }
  /** Another call was quicker: what is there now. */
  | { readonly kind: 'facts-differ'; readonly facts: Facts }

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

  async recall(fields: readonly Field[]): Promise<Facts> {
    if (fields.length === 0) return new Facts([])
    const { names, issuers } = this.#keys
    const args = fields.flatMap(({ hash, field }) => [hash === 'names' ? '1' : '2', field])
    const texts = (await this.#run(recallScript, [names, issuers], args)) as readonly RedisReply[]
    return factsOf(fields, texts)
  }

  async read(key: string): Promise<string | null> {
    const reply = await this.#run(readScript, [key], [])
    if (Array.isArray(reply)) throw unreadable(key, String(reply[0]))
    return reply === null ? null : String(reply)
  }

  /** Prunes in parts, so that no call holds the server up for long. */
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

  /** Runs the effect and leaves `after` in the memory, if it is still as `before`. Sent once, whatever becomes of it. */
  async apply(before: Facts, after: Facts, effect: Effect): Promise<Outcome> {
    const { names, touched, issuers } = this.#keys
    const compared = before.all
    const changed = after.changesSince(before)
    const touchedNames = after.all.filter(({ hash }) => hash === 'names').map(({ field }) => field)
    const textsOf = ({ hash, field, text }: Fact) => [hash === 'names' ? '1' : '3', field, text]
    const args = [
      String(Math.round(this.#clock.wallMs())),
      ...[compared, changed, touchedNames].map(({ length }) => String(length)),
      ...[...compared, ...changed].flatMap(textsOf),
      ...touchedNames,
      ...effect.args,
    ]
    const sending = this.#within((limit) =>
      this.#effects.run(effect.script, [names, touched, issuers, ...effect.keys], args, limit),
    )
    const reply = await sending.catch((error: unknown) => {
      throw compileErrorOf(error, effect.blame.argument) ?? error
    })
    const [outcome, ...rest] = reply as readonly RedisReply[]
    const [first = null] = rest
    switch (Number(outcome)) {
      case outcomes.applied:
        return { kind: 'applied', result: first }
      case outcomes.factsDiffer:
        return { kind: 'facts-differ', facts: factsOf(compared, rest) }
      case outcomes.beforeDiffers: {
        const key = String(first).slice(this.#connection.keyPrefix.length)
        throw new ConflictError(`${quote(key)} has been changed by another while it was used.`)
      }
      default:
        throw failureOfEffect(effect.blame, String(first))
    }
  }

  /** The script around the user's own Lua, made once. */
  scriptOf(source: string): RedisScript {
    let script = this.#scripts.get(source)
    if (script === undefined) {
      // Texts that never come again would fill the memory.
      if (this.#scripts.size >= MOST_SCRIPTS) this.#scripts.clear()
      script = framedEffect(source)
      this.#scripts.set(source, script)
    }
    return script
  }

  #run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<RedisReply> {
    return this.#within(({ signal }) => this.#connection.run(script, keys, args, signal))
  }

  #within<T>(call: (limit: CallLimit) => Promise<T>): Promise<T> {
    const deadlineMs = this.#clock.monotonicMs() + this.#timeoutMs
    const work = ({ signal }: Cancellation) => call({ deadlineMs, signal })
    return withLimit(this.#clock, this.#timeoutMs, work, { keepsProcessAlive: true })
  }
}

function factsOf(fields: readonly Field[], texts: readonly RedisReply[]): Facts {
  return new Facts(
    fields.map(({ hash, field }, index) => ({ hash, field, text: String(texts[index] ?? '') })),
  )
}
