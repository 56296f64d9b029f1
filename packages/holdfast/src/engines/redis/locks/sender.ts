/**
 * Sends requests to the server. Requests of one time leave together, in a Cluster those of one slot.
 *
 * Failures: the call fails after it left (all its requests are unknown), or is answered late or never (the caller is
 * released by its cancellation; the request may land all the same, and its abandon will meet it).
 */

import { BackendUnavailableError } from '../../../base/errors.ts'
import { warn } from '../../../base/events.ts'
import { throwIfCancelled } from '../../../kit/backend-kit.ts'
import { type Asker, Lane } from '../../../kit/lane.ts'
import type { Call } from '../../../spi.ts'
import { type Promptness, type RedisConnection, type RedisReply, slotOf } from '../client/index.ts'
import { notUnderstood, readReply, type ScriptAnswer } from './answers.ts'
import type { Connection } from './connection.ts'
import { type Request, type ScriptCall, shortCallOf, wholeCallOf } from './requests.ts'

/** For requests that may run twice: they also go over our own connection if the client is late. */
export type PromptLimits = Omit<Promptness, 'confirms'>

/** Is told of each call that was answered: the indexes of its requests, and the answers so far to all requests. */
export type OnAnswered = (indexes: readonly number[], answers: readonly (ScriptAnswer | Error)[]) => void

export interface SendAllOptions {
  readonly onAnswered?: OnAnswered
  readonly promptly?: PromptLimits
}

/** Renewals in one call: half a millisecond of the server's time. */
const MOST_RENEWALS = 500
/** A larger batch is no cheaper for each request, and the server and this process would take turns instead of working at once. */
const LARGEST_BATCH = 64
/** Enough for a server that is far away; the rest waits here, where it can be cancelled. */
const MOST_IN_FLIGHT = 64
/** A clock that is behind is behind at every grant; once in a while is enough to say so. */
const WARNING_INTERVAL_MS = 60_000

export class Sender {
  readonly #connection: Connection
  readonly #client: RedisConnection
  /** In a Cluster one for each slot that was used. */
  readonly #lanes = new Map<number, Lane<Request, ScriptAnswer>>()
  /** Of a single server, once it was used. */
  #lane: Lane<Request, ScriptAnswer> | undefined
  #nextWarningMs = Number.NEGATIVE_INFINITY

  constructor(connection: Connection) {
    this.#connection = connection
    this.#client = connection.client
  }

  /** One request, together with those that come at the same time. */
  ask(request: Request, call: Call, asker: Asker<ScriptAnswer>): void {
    const lane = this.#lane ?? this.#laneOf(this.#slotOf(request))
    lane.add(request, call, asker)
  }

  /** The same with a promise. */
  send(request: Request, call: Call): Promise<ScriptAnswer> {
    return new Promise((answered, failed) => this.ask(request, call, { answered, failed }))
  }

  /**
   * Many requests of one caller, in as few calls as may be; the answers come in the same order. A call that fails, say in
   * a part of a Cluster that is silent, is the answer to its own requests only.
   */
  async sendAll(
    requests: readonly Request[],
    call: Call,
    { onAnswered, promptly }: SendAllOptions = {},
  ): Promise<(ScriptAnswer | Error)[]> {
    throwIfCancelled('redis', call)
    const answers: (ScriptAnswer | Error)[] = new Array(requests.length)
    const send = async (indexes: readonly number[]) => {
      const part = indexes.map((index) => requests[index] as Request)
      const settled = await this.#sendAlone(part, call.signal, promptly).catch((error: Error) => error)
      for (const [at, index] of indexes.entries())
        answers[index] = settled instanceof Error ? settled : (settled[at] ?? notUnderstood())
      if (!(settled instanceof Error)) onAnswered?.(indexes, answers)
    }
    const bySlot = Map.groupBy(requests.keys(), (index) => this.#slotOf(requests[index] as Request))
    const sending: Promise<void>[] = []
    for (const indexes of bySlot.values())
      for (let start = 0; start < indexes.length; start += MOST_RENEWALS)
        sending.push(send(indexes.slice(start, start + MOST_RENEWALS)))
    await Promise.all(sending)
    return answers
  }

  close(): void {
    for (const lane of this.#lanes.values()) lane.close()
    // Whoever asks later is told by the client that it is closed.
    this.#lanes.clear()
    this.#lane = undefined
  }

  #slotOf({ key }: Request): number {
    return this.#client.isCluster ? slotOf(this.#client.keyPrefix + key) : 0
  }

  #laneOf(slot: number): Lane<Request, ScriptAnswer> {
    const found = this.#lanes.get(slot)
    if (found !== undefined) return found
    const { client, clock } = this.#connection
    const lane = new Lane<Request, ScriptAnswer>({
      backend: 'redis',
      clock,
      maxBatch: LARGEST_BATCH,
      maxInFlight: MOST_IN_FLIGHT,
      minSplit: 32,
      gathersPerTurn: true,
      oneBatchPerTurn: client.writesOncePerTurn,
      isConnected: () => client.isConnected,
      send: this.#sendBatch,
    })
    this.#lanes.set(slot, lane)
    if (!client.isCluster) this.#lane = lane
    return lane
  }

  readonly #sendBatch = (requests: readonly Request[]): Promise<(ScriptAnswer | Error)[]> => {
    const { script, keys, args } = this.#callFor(requests)
    return this.#client.ask(script, keys, args, this.#read)
  }

  async #sendAlone(
    requests: readonly Request[],
    signal: AbortSignal,
    promptly: PromptLimits | undefined,
  ): Promise<(ScriptAnswer | Error)[]> {
    const { script, keys, args } = this.#callFor(requests)
    const losses = this.#client.lossCount()
    const read = (reply: RedisReply) => this.#read(reply, losses !== this.#client.lossCount())
    if (promptly === undefined) return read(await this.#client.run(script, keys, args, signal))
    let isPrompt = false
    const confirms = (reply: RedisReply) => {
      isPrompt = read(reply).some(isConfirmation)
      return isPrompt
    }
    const answers = read(
      await this.#client.runPromptly(script, keys, args, signal, { ...promptly, confirms }),
    )
    return isPrompt ? answers.map((answer) => (isConfirmation(answer) ? answer : notConfirmed())) : answers
  }

  readonly #read = (reply: RedisReply, isRepeated: boolean): (ScriptAnswer | Error)[] => {
    const { answers, note } = readReply(reply)
    if (note !== undefined) this.#clockIsBehind(Number(note))
    return isRepeated ? answers.map(unknownIfNotHeld) : answers
  }

  #callFor(requests: readonly Request[]): ScriptCall {
    const { setting, watch, short, marks } = this.#connection
    const [first] = requests
    const alone = requests.length === 1 && first !== undefined ? shortCallOf(first, watch) : undefined
    if (alone !== undefined)
      return { script: short[alone.script], keys: [alone.key, ...marks], args: alone.args }
    return wholeCallOf(requests, setting, marks)
  }

  #clockIsBehind(us: number): void {
    const nowMs = this.#connection.clock.monotonicMs()
    if (nowMs < this.#nextWarningMs) return
    this.#nextWarningMs = nowMs + WARNING_INTERVAL_MS
    const behindMs = Math.round(us / 1_000)
    warn({
      backend: 'redis',
      namespace: this.#connection.demands.namespace,
      code: 'HOLDFAST_REDIS_CLOCK',
      warning:
        `the server’s clock is ${behindMs} ms behind the last token: it has been set back, or another server with ` +
        'a slower clock has become the primary. Tokens go on increasing as long as the mark of the last one is kept',
    })
  }
}

/** Whether it says that a claim is there; over a connection of our own nothing else counts (`Promptness`). */
function isConfirmation(answer: ScriptAnswer | Error): boolean {
  return !(answer instanceof Error) && ['prolonged', 'granted', 'waiting'].includes(answer.kind)
}

function notConfirmed(): Error {
  const what = 'another connection did not find it, and the client, which decides, has not answered'
  return new BackendUnavailableError('redis', what, 'unknown')
}

/** The client may have sent the call twice. Only `not-held` can then be wrong: the first copy may have released. */
function unknownIfNotHeld(answer: ScriptAnswer | Error): ScriptAnswer | Error {
  if (answer instanceof Error || answer.kind !== 'not-held') return answer
  const what =
    'it is not held, but the connection was lost during the call: the client may have sent the release twice'
  return new BackendUnavailableError('redis', what, 'unknown')
}
