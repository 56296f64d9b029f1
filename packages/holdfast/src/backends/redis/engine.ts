/**
 * Sends requests to the scripts: those of one time together, on one primary all of them, in a Cluster those of one slot.
 *
 * What may go wrong: the call fails after it left (all its requests are unknown), the answer comes late or never
 * (whoever waits is released by the signal; the request may land all the same, and its abandon will meet it).
 */

import type { Clock } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { warn } from '../../base/events.ts'
import type { Random } from '../../base/ids.ts'
import {
  type Promptness,
  type RedisConnection,
  type RedisReply,
  type RedisScript,
  slotOf,
} from '../../clients/redis/index.ts'
import { operatorCallExpired, throwIfCancelled } from '../../kit/backend-kit.ts'
import { type Asker, Lane } from '../../kit/lane.ts'
import type { Call, OperatorCall } from '../../spi.ts'
import { type Answer, readReply } from './answers.ts'
import { type Keys, TOKEN_KEY } from './keys.ts'
import { failureOf } from './refusals.ts'
import type { Request } from './requests.ts'
import { batchScript } from './scripts/batch.ts'
import { Letter } from './scripts/letters.ts'

/** How tokens are drawn, and whether on a Cluster, as the scripts are told. */
export type TokenMode = '0' | '1' | '2' | '3'

export interface EngineOptions {
  readonly connection: RedisConnection
  readonly keys: Keys
  readonly namespace: string
  readonly tokens: TokenMode
  readonly clock: Clock
  readonly random: Random
}

export type PromptLimits = Omit<Promptness, 'confirms'>

export interface SendAllOptions {
  /** Told of each call that was answered: the places of its requests. */
  readonly onAnswered?: (indexes: readonly number[]) => void
  /** Requests that may run twice: sent over our own connection too if the client is late. */
  readonly promptly?: PromptLimits
}

/** Renewals in one call: half a millisecond of the server's time. */
const MOST_RENEWALS = 500
/** What many ask for in the same words is said once for all of them. */
const ALIKE: { readonly [letter in Letter]?: Letter } = {
  [Letter.enqueue]: Letter.enqueueAlike,
  [Letter.tryTake]: Letter.tryTakeAlike,
}
/** A clock that is behind is behind at every grant; once in a while is enough to say so. */
const WARNING_INTERVAL_MS = 60_000

const maybeReleased: Answer = {
  kind: 'failed',
  message:
    'it is not held, but the connection was lost during the call: the client may have sent the release twice',
}

/** The client may have sent the batch twice. Only `not-held` can then be wrong: the first copy may have released. */
function unknownIfNotHeld(answer: Answer): Answer {
  return answer.kind === 'not-held' ? maybeReleased : answer
}

function failuresAsErrors(answers: readonly Answer[]): readonly (Answer | Error)[] {
  return answers.some(isFailure)
    ? answers.map((answer) => (isFailure(answer) ? failureOf(answer) : answer))
    : answers
}

function isFailure(answer: Answer): answer is Extract<Answer, { kind: 'failed' }> {
  return answer.kind === 'failed'
}

/** Whether it says that a claim is there; over a connection of our own nothing else counts (`Promptness`). */
function isConfirmation({ kind }: Answer): boolean {
  return kind === 'prolonged' || kind === 'granted' || kind === 'waiting'
}

const notConfirmed: Answer = {
  kind: 'failed',
  message: 'another connection did not find it, and the client, which decides, has not answered',
}

export class Engine {
  readonly connection: RedisConnection
  readonly keys: Keys
  readonly namespace: string
  readonly tokens: TokenMode
  /** The first argument of every script about a name: how tokens are drawn, and where watchers are found. */
  readonly setting: string
  /** Wakes the readers of the log of events; on a Cluster the channel by which watchers are found. */
  readonly watchChannel: string
  readonly clock: Clock
  readonly random: Random
  /** One, or in a Cluster one for each slot that was used. */
  readonly #lanes = new Map<number, Lane<Request, Answer>>()
  #nextWarningMs = Number.NEGATIVE_INFINITY

  constructor(options: EngineOptions) {
    this.connection = options.connection
    this.keys = options.keys
    this.namespace = options.namespace
    this.tokens = options.tokens
    const watch = options.connection.keyPrefix + options.keys.watch
    // Rights to channels are given by how they begin.
    this.watchChannel = watch.slice(watch.indexOf('holdfast:'))
    this.setting = options.tokens + (options.connection.isCluster ? this.watchChannel : watch)
    this.clock = options.clock
    this.random = options.random
  }

  get isFenced(): boolean {
    return this.tokens === '1' || this.tokens === '2'
  }

  /** The name that a key is the lock key of; null if it is none of ours. */
  readonly nameOf = (key: string): string | null => {
    const { keyPrefix } = this.connection
    return key.startsWith(keyPrefix) ? this.keys.nameOf(key.slice(keyPrefix.length)) : null
  }

  /** One request, together with those that come at the same time. */
  send(request: Request, call: Call): Promise<Answer> {
    return new Promise<Answer>((answered, failed) => this.ask(request, call, { answered, failed }))
  }

  /** The same for one who is told without a promise. */
  ask(request: Request, call: Call, asker: Asker<Answer>): void {
    const slot = this.connection.isCluster ? slotOf(this.connection.keyPrefix + request.key) : 0
    let lane = this.#lanes.get(slot)
    if (lane === undefined) {
      lane = this.#openLane()
      this.#lanes.set(slot, lane)
    }
    lane.add(request, call, asker)
  }

  #openLane(): Lane<Request, Answer> {
    const { connection, clock } = this
    return new Lane({
      backend: 'redis',
      clock,
      maxBatch: 256,
      maxInFlight: 2,
      minSplit: 32,
      minFurther: 16,
      oneBatchPerTurn: connection.writesOncePerTurn,
      isConnected: () => connection.isConnected,
      send: (requests) => this.#sendBatch(requests).then(failuresAsErrors),
    })
  }

  /**
   * Many requests of one caller, in as few calls as may be; the answers come in the same order. A call that fails, say in
   * a part of a Cluster that is silent, is the answer to what was in it, and to nothing else.
   */
  async sendAll(
    requests: readonly Request[],
    call: Call,
    { onAnswered, promptly }: SendAllOptions = {},
  ): Promise<Answer[]> {
    throwIfCancelled('redis', call)
    const answers: Answer[] = new Array(requests.length)
    const bySlot = new Map<number, number[]>()
    for (const [index, { key }] of requests.entries()) {
      const slot = this.connection.isCluster ? slotOf(this.connection.keyPrefix + key) : 0
      const indexes = bySlot.get(slot) ?? []
      bySlot.set(slot, indexes)
      indexes.push(index)
    }
    const sending: Promise<void>[] = []
    for (const indexes of bySlot.values()) {
      for (let start = 0; start < indexes.length; start += MOST_RENEWALS) {
        const part = indexes.slice(start, start + MOST_RENEWALS)
        const batch = part.map((index) => requests[index] as Request)
        sending.push(
          this.#sendBatch(batch, call.signal, promptly).then(
            (settled) => {
              for (const [at, index] of part.entries()) answers[index] = settled[at] as Answer
              onAnswered?.(part)
            },
            (cause: unknown) => {
              const message = cause instanceof Error ? cause.message : String(cause)
              for (const index of part) answers[index] = { kind: 'failed', message, cause }
            },
          ),
        )
      }
    }
    await Promise.all(sending)
    return answers
  }

  /**
   * Runs an operator's script. If the connection was lost during the call, the answer may belong to a second copy: the
   * outcome is unknown.
   */
  async operate(
    script: RedisScript,
    key: string,
    args: readonly string[],
    call: OperatorCall,
  ): Promise<string> {
    const losses = this.connection.lossCount()
    const answer = String(await this.run(script, key, [String(call.notAfterMs), ...args], call))
    if (losses !== this.connection.lossCount())
      throw new BackendUnavailableError(
        'redis',
        'the connection was lost during the call, and the client may have sent it twice. Inspect the name, then decide',
        'unknown',
      )
    if (answer === 'late') throw operatorCallExpired('redis')
    return answer
  }

  /** A script about one key, with the way of the tokens as its first argument. */
  async run(script: RedisScript, key: string, args: readonly string[], call: Call): Promise<RedisReply> {
    const keys = this.tokens === '1' ? [key, TOKEN_KEY] : [key]
    return this.connection.run(script, keys, [this.setting, ...args], call.signal)
  }

  close(): void {
    for (const lane of this.#lanes.values()) lane.close()
    this.connection.close()
  }

  #sendBatch(
    requests: readonly Request[],
    signal?: AbortSignal,
    promptly?: PromptLimits,
  ): Promise<readonly Answer[]> {
    const keys: string[] = []
    const args: string[] = [this.setting]
    let terms: readonly string[] | undefined
    for (const request of requests) {
      keys.push(request.key)
      const alike = ALIKE[request.letter]
      if (alike !== undefined && request.args === terms) args.push(alike + request.who)
      else {
        args.push(request.letter + request.who)
        for (const arg of request.args) args.push(arg)
        if (alike !== undefined) terms = request.args
      }
    }
    if (this.tokens === '1') keys.push(TOKEN_KEY)
    const losses = this.connection.lossCount()
    const read = (reply: RedisReply) => {
      const answers = this.#read(reply, requests.length)
      return losses === this.connection.lossCount() ? answers : answers.map(unknownIfNotHeld)
    }
    if (promptly === undefined) return this.connection.run(batchScript, keys, args, signal).then(read)
    let isPrompt = false
    const confirms = (reply: RedisReply) => {
      isPrompt = this.#read(reply, requests.length).some(isConfirmation)
      return isPrompt
    }
    return this.connection
      .runPromptly(batchScript, keys, args, signal, { ...promptly, confirms })
      .then((reply) => {
        const answers = read(reply)
        return isPrompt ? answers.map((answer) => (isConfirmation(answer) ? answer : notConfirmed)) : answers
      })
  }

  #read(answer: RedisReply, count: number): readonly Answer[] {
    const reply = readReply(answer, count)
    if (reply === null)
      throw new BackendUnavailableError('redis', 'a script has answered with something unknown', 'unknown')
    if (reply.note !== undefined) this.#clockIsBehind(reply.note)
    return reply.answers
  }

  #clockIsBehind(note: string): void {
    const nowMs = this.clock.monotonicMs()
    if (nowMs < this.#nextWarningMs) return
    this.#nextWarningMs = nowMs + WARNING_INTERVAL_MS
    const behindMs = Math.round(Number(note.replace('behind', '')) / 1_000)
    warn({
      backend: 'redis',
      namespace: this.namespace,
      code: 'HOLDFAST_REDIS_CLOCK',
      warning:
        `the server’s clock is ${behindMs} ms behind the last token: it has been set back, or another server with ` +
        'a slower clock has become the primary. Tokens go on increasing as long as the mark of the last one is kept',
    })
  }
}
