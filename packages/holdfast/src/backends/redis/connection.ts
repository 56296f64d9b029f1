/**
 * What the backend and its sessions share: the way to the server, and the waiters. Requests of one time leave together, in a
 * Cluster those of one slot.
 *
 * What may go wrong: the call fails after it left (all its requests are unknown), or is answered late or never (the caller is
 * released by its cancellation; the request may land all the same, and its abandon will meet it).
 */

import { unlessAborted } from '../../base/aborting.ts'
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
import { cancelledCall, operatorCallExpired } from '../../kit/backend-kit.ts'
import { type Asker, Lane } from '../../kit/lane.ts'
import { Lifetime } from '../../kit/lifetime.ts'
import type { Call, OperatorCall } from '../../spi.ts'
import { type Answer, readReply } from './answers.ts'
import { Confirming, type WaitFor } from './confirming.ts'
import { checkServer, type ServerDemands } from './diagnosis.ts'
import { withoutRights } from './failures.ts'
import { type Keys, TOKEN_KEY } from './keys.ts'
import type { Request } from './requests.ts'
import { requestScript } from './scripts/requests.ts'
import { WaitingRoom } from './waiting-room.ts'

export interface ConnectionOptions {
  readonly client: RedisConnection
  readonly keys: Keys
  readonly demands: ServerDemands
  readonly waitFor: WaitFor | null
  readonly pollMs: number
  readonly clock: Clock
  readonly random: Random
}

/** For requests that may run twice: they also go over our own connection if the client is late. */
export type PromptLimits = Omit<Promptness, 'confirms'>

export interface SendAllOptions {
  /** Told of each call that was answered: the indexes of its requests. */
  readonly onAnswered?: (indexes: readonly number[]) => void
  readonly promptly?: PromptLimits
}

/** Renewals in one call: half a millisecond of the server's time. */
const MOST_RENEWALS = 500
/** So many requests are worth a call of their own while another is in flight. */
const MANY = 16
/** A clock that is behind is behind at every grant; once in a while is enough to say so. */
const WARNING_INTERVAL_MS = 60_000

export class Connection {
  readonly client: RedisConnection
  readonly keys: Keys
  readonly demands: ServerDemands
  readonly clock: Clock
  readonly random: Random
  readonly lifetime: Lifetime
  readonly room: WaitingRoom
  /** Makes sure of a grant where the user has asked for more than the primary's word. */
  readonly confirming: Confirming | null
  /** Where grants for this process are pushed to. */
  readonly channel: string
  /** The first argument of every script about a name: see `scripts/prelude.ts`. */
  readonly setting: string
  /** The server has been looked at, and pushes arrive. */
  isReady = false
  readonly #hasOneMark: boolean
  readonly #isCluster: boolean
  /** One, or in a Cluster one for each slot that was used. */
  readonly #lanes = new Map<number, Lane<Request, Answer>>()
  #preparing: Promise<void> | undefined
  #nextWarningMs = Number.NEGATIVE_INFINITY

  constructor({ client, keys, demands, waitFor, pollMs, clock, random }: ConnectionOptions) {
    this.client = client
    this.keys = keys
    this.demands = demands
    this.clock = clock
    this.random = random
    this.lifetime = new Lifetime('redis', clock)
    this.channel = keys.channel(random.id())
    const { isCluster, keyPrefix } = client
    this.#isCluster = isCluster
    this.#hasOneMark = demands.isFenced && !isCluster
    const tokens = isCluster ? (demands.isFenced ? '2' : '3') : demands.isFenced ? '1' : '0'
    this.setting = isCluster ? tokens : tokens + keyPrefix + keys.watch
    this.confirming = waitFor === null ? null : new Confirming(this, waitFor)
    const look = (requests: readonly Request[]) =>
      this.lifetime.inBackground((call) => this.sendAll(requests, call))
    this.room = new WaitingRoom({ clock, random, pollMs, look })
  }

  /** Once for all sessions: the first waiter shall not wait for the subscription. */
  prepare(call: Call): Promise<void> {
    this.#preparing ??= this.lifetime
      .inBackground((own) => this.#prepare(own))
      .catch((error: unknown) => {
        this.#preparing = undefined
        throw withoutRights('publishing or subscribing', error)
      })
    return unlessAborted(this.#preparing, call.signal, () =>
      cancelledCall('redis', call.signal, 'not-applied'),
    )
  }

  async #prepare(call: Call): Promise<void> {
    await checkServer(this.client, this.demands, call)
    const { room } = this
    await this.client.subscribe(
      this.channel,
      (message) => room.receive(message),
      () => room.lookForAll(),
      call.signal,
    )
    this.isReady = true
  }

  /** One request, together with those that come at the same time. */
  ask(request: Request, call: Call, asker: Asker<Answer>): void {
    const slot = this.#isCluster ? this.#slotOf(request) : 0
    let lane = this.#lanes.get(slot)
    if (lane === undefined) {
      lane = this.#openLane()
      this.#lanes.set(slot, lane)
    }
    lane.add(request, call, asker)
  }

  /** The same with a promise. */
  send(request: Request, call: Call): Promise<Answer> {
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
  ): Promise<(Answer | Error)[]> {
    this.lifetime.begin(call)
    const answers: (Answer | Error)[] = new Array(requests.length)
    const send = async (indexes: readonly number[]) => {
      const part = indexes.map((index) => requests[index] as Request)
      const settled = await this.#run(part, call.signal, promptly).catch((error: Error) => error)
      for (const [at, index] of indexes.entries())
        answers[index] = settled instanceof Error ? settled : (settled[at] as Answer | Error)
      if (!(settled instanceof Error)) onAnswered?.(indexes)
    }
    const bySlot = new Map<number, number[]>()
    for (const [index, request] of requests.entries()) {
      const slot = this.#isCluster ? this.#slotOf(request) : 0
      const indexes = bySlot.get(slot) ?? []
      indexes.push(index)
      bySlot.set(slot, indexes)
    }
    const sending: Promise<void>[] = []
    for (const indexes of bySlot.values())
      for (let start = 0; start < indexes.length; start += MOST_RENEWALS)
        sending.push(send(indexes.slice(start, start + MOST_RENEWALS)))
    await Promise.all(sending)
    return answers
  }

  /** A script about one name. */
  runFor(script: RedisScript, name: string, args: readonly string[], call: Call): Promise<RedisReply> {
    const key = this.keys.lock(name)
    const keys = this.#hasOneMark ? [key, TOKEN_KEY] : [key]
    return this.client.run(script, keys, [this.setting, ...args], call.signal)
  }

  /**
   * Runs an operator's script. If the connection was lost during the call, the answer may belong to a second copy: the
   * outcome is unknown.
   */
  async operate(
    script: RedisScript,
    name: string,
    args: readonly string[],
    call: OperatorCall,
  ): Promise<string> {
    const losses = this.client.lossCount()
    const answer = String(await this.runFor(script, name, [String(call.notAfterMs), ...args], call))
    if (losses !== this.client.lossCount())
      throw new BackendUnavailableError(
        'redis',
        'the connection was lost during the call, and the client may have sent it twice. Inspect the name, then decide',
        'unknown',
      )
    if (answer === 'late') throw operatorCallExpired('redis')
    return answer
  }

  close(): void {
    const error = this.lifetime.end()
    this.room.close(error)
    this.confirming?.close()
    for (const lane of this.#lanes.values()) lane.close()
    this.client.close()
  }

  #slotOf({ key }: Request): number {
    return slotOf(this.client.keyPrefix + key)
  }

  #openLane(): Lane<Request, Answer> {
    const { client, clock } = this
    let lastBatch = 0
    return new Lane({
      backend: 'redis',
      clock,
      maxBatch: 256,
      maxInFlight: 2,
      minSplit: 32,
      minFurther: MANY,
      // The callers of a batch come back in several groups, and groups of one turn would be written, and answered, together.
      ...(client.writesOncePerTurn && { oneBatchPerTurn: true, isPatient: () => lastBatch >= MANY }),
      isConnected: () => client.isConnected,
      send: (requests) => {
        lastBatch = requests.length
        return this.#run(requests)
      },
    })
  }

  #run(
    requests: readonly Request[],
    signal?: AbortSignal,
    promptly?: PromptLimits,
  ): Promise<(Answer | Error)[]> {
    const keys: string[] = []
    const args: string[] = [this.setting]
    let last: readonly string[] | undefined
    for (const { key, operation, who, terms, args: own } of requests) {
      keys.push(key)
      if (terms !== undefined && terms !== last) args.push(...terms)
      last = terms ?? last
      args.push(operation + who, ...own)
    }
    if (this.#hasOneMark) keys.push(TOKEN_KEY)
    const losses = this.client.lossCount()
    const read = (reply: RedisReply) => {
      const { answers, note } = readReply(reply, requests.length)
      if (note !== undefined) this.#clockIsBehind(note)
      return losses === this.client.lossCount() ? answers : answers.map(unknownIfNotHeld)
    }
    if (promptly === undefined) return this.client.run(requestScript, keys, args, signal).then(read)
    let isPrompt = false
    const confirms = (reply: RedisReply) => {
      isPrompt = read(reply).some(isConfirmation)
      return isPrompt
    }
    const running = this.client.runPromptly(requestScript, keys, args, signal, { ...promptly, confirms })
    return running.then((reply) =>
      isPrompt
        ? read(reply).map((answer) => (isConfirmation(answer) ? answer : notConfirmed()))
        : read(reply),
    )
  }

  #clockIsBehind(note: string): void {
    const nowMs = this.clock.monotonicMs()
    if (nowMs < this.#nextWarningMs) return
    this.#nextWarningMs = nowMs + WARNING_INTERVAL_MS
    const behindMs = Math.round(Number(note.replace('behind', '')) / 1_000)
    warn({
      backend: 'redis',
      namespace: this.demands.namespace,
      code: 'HOLDFAST_REDIS_CLOCK',
      warning:
        `the server’s clock is ${behindMs} ms behind the last token: it has been set back, or another server with ` +
        'a slower clock has become the primary. Tokens go on increasing as long as the mark of the last one is kept',
    })
  }
}

/** Whether it says that a claim is there; over a connection of our own nothing else counts (`Promptness`). */
function isConfirmation(answer: Answer | Error): boolean {
  return !(answer instanceof Error) && ['prolonged', 'granted', 'waiting'].includes(answer.kind)
}

function notConfirmed(): Error {
  const what = 'another connection did not find it, and the client, which decides, has not answered'
  return new BackendUnavailableError('redis', what, 'unknown')
}

/** The client may have sent the call twice. Only `not-held` can then be wrong: the first copy may have released. */
function unknownIfNotHeld(answer: Answer | Error): Answer | Error {
  if (answer instanceof Error || answer.kind !== 'not-held') return answer
  const what =
    'it is not held, but the connection was lost during the call: the client may have sent the release twice'
  return new BackendUnavailableError('redis', what, 'unknown')
}
