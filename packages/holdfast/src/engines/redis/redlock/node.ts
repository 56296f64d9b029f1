/**
 * One of the servers. Its time-out starts when it is connected (`contact.ts`).
 *
 *   answering ──no answer within the time-out──▶ silent ──the answer comes, or the connection fails──▶ answering
 *
 *   started a moment ago (`identity` in scripts.ts) ──its quarantine is over──▶ its votes count
 *
 * A connection answers in order, so a silent node is not asked again before it has answered: a dead node costs one time-out,
 * not one for each call, and what it was not asked has certainly not been applied. Only what gives something up is sent to it.
 *
 * Requests for claims leave through one lane, in the order in which they came. Votes are asked of a certain process, by its run
 * id. Another process under the same address does nothing and says so; it is identified, and asked again.
 */

import type { Clock } from '../../../base/clock.ts'
import { BackendUnavailableError, type HoldfastError, UnsupportedError } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { type Asker, Lane } from '../../../kit/lane.ts'
import {
  type ClientState,
  type Concern,
  evictionConcern,
  type RedisConnection,
  type RedisReply,
  type RedisScript,
  remedyOf,
} from '../client/index.ts'
import { callOf } from './claim.ts'
import { Contact } from './contact.ts'
import { bootKey } from './keys.ts'
import type { NodeTimeouts } from './node-timeouts.ts'
import { allScripts, openScript } from './scripts.ts'

/** A part of a call of `claimsScript`. */
export interface ClaimRequest {
  readonly operation: 'acquire' | 'restore' | 'release' | 'abandon' | 'close' | 'force'
  /** Two keys. */
  readonly session: string
  readonly lock: string
  /** The owner first. The node has been identified when this is called. */
  argsFor(node: RedlockNode): readonly string[]
}

/** A server's identity, in its own words. */
export interface Identity {
  /** The id of its process; empty if the user may not ask. */
  readonly runId: string
  readonly version: string
  /** The TTL of the session that was opened with it. */
  readonly ttlMs: number
}

export interface NodeOptions {
  readonly index: number
  readonly connection: RedisConnection
  readonly readiness: ClientState
  /** For messages: `node 2 of 5`. */
  readonly label: string
  readonly clock: Clock
  readonly timeouts: NodeTimeouts
  readonly connectTimeoutMs: number
  readonly nodeTimeoutMs: number
  readonly quarantineMs: number
}

export interface NodeObserver {
  /** The node can be asked, for the first time or again. */
  onOpen(): void
  /** Something about the server that can cost locks. */
  onConcern(concern: Concern): void
}

const LARGEST_BATCH = 128

type Replies = readonly (RedisReply | Error)[]

export class RedlockNode {
  readonly index: number
  readonly label: string
  readonly connection: RedisConnection
  readonly contact: Contact
  readonly #options: NodeOptions
  readonly #lane: Lane<ClaimRequest, RedisReply>
  #observer: NodeObserver | undefined
  #isChecked = false
  /** Requests that were not answered in time, and may be yet. */
  #owed = 0
  /** How long the last answer took that came too late; undefined when answers come in time. */
  #lateMs: number | undefined
  #runId: string | null = null
  /** By the monotonic clock; 0: its votes count. */
  #countsFromMs = 0

  constructor(options: NodeOptions) {
    const { connection, label, clock } = options
    this.#options = options
    this.index = options.index
    this.connection = connection
    this.label = `${label} (${connection.address.replace(/\/\d+$/, '')})`
    this.#lane = new Lane({
      backend: 'redlock',
      clock,
      maxBatch: LARGEST_BATCH,
      send: (requests) => this.#askTogether(requests),
    })
    this.contact = new Contact(options, {
      onConnected: () => this.#loadScripts(),
      onOpen: () => this.#observer?.onOpen(),
      failure: (reason) => this.#refused(reason),
    })
  }

  observe(observer: NodeObserver): void {
    this.#observer = observer
  }

  /** The node's answers are late: it owes one, or the last one that it owed took too long. */
  get isSlow(): boolean {
    return this.isSilent || this.#lateMs !== undefined
  }

  get isSilent(): boolean {
    return this.#owed > 0
  }

  /** Connected, and owing nothing. */
  get isAnswering(): boolean {
    return !this.isSilent && this.contact.isOpen
  }

  /** The process that was identified last; null before that. */
  get runId(): string | null {
    return this.#runId
  }

  /** For how much longer the votes of the process that was identified last do not count. */
  get quarantinedForMs(): number {
    if (this.#countsFromMs === 0) return 0
    const leftMs = this.#countsFromMs - this.#options.clock.monotonicMs()
    if (leftMs <= 0) this.#countsFromMs = 0
    return Math.max(0, leftMs)
  }

  close(): void {
    this.contact.close()
    this.connection.close()
  }

  /** Asks in order with the other requests for claims. Requests that come while an answer is awaited leave together. */
  ask(request: ClaimRequest, asker: Asker<RedisReply>): void {
    this.#lane.add(request, neverCancelled, asker)
  }

  /** The same with a promise. */
  request(request: ClaimRequest): Promise<RedisReply> {
    return this.#lane.ask(request, neverCancelled)
  }

  /** A script of its own. */
  async run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<RedisReply> {
    await this.#ready()
    return this.#bounded(this.connection.run(script, keys, args))
  }

  /** A plain command. */
  async send(args: readonly string[]): Promise<RedisReply> {
    await this.#ready()
    const [primary] = await this.connection.nodes()
    if (primary === undefined) throw this.#failure('has no primary', 'not-applied')
    return this.#bounded(primary.send(args))
  }

  /** Opens a session if its key is given, and learns which process answers. */
  async open(sessionKeys: readonly string[] = [], sessionArgs: readonly string[] = []): Promise<Identity> {
    const { clock, quarantineMs } = this.#options
    const args = [String(quarantineMs), ...sessionArgs]
    const reply = await this.run(openScript, [bootKey, ...sessionKeys], args)
    const [runId, quarantinedForMs, version, ttlMs] = reply as readonly RedisReply[]
    this.#runId = String(runId)
    this.#countsFromMs = Number(quarantinedForMs) === 0 ? 0 : clock.monotonicMs() + Number(quarantinedForMs)
    return { runId: this.#runId, version: String(version), ttlMs: Number(ttlMs) }
  }

  /** Before a grant is named to it: by its run id it is known when it made the grant. */
  async identify(): Promise<void> {
    if (this.#runId === null) await this.open()
  }

  /** Rejects if it cannot be asked now: certainly nothing was applied then. */
  async #ready(): Promise<void> {
    if (this.isSilent) throw this.#failure('not asked, because it owes an answer', 'not-applied')
    await this.contact.reach()
  }

  #askTogether(requests: readonly ClaimRequest[]): Promise<Replies> {
    if (this.isAnswering && this.#runId) return this.#exchange(requests)
    return this.#prepare().then(
      () => this.#exchange(requests),
      (error: Error) => this.#giveUpOnly(requests, error),
    )
  }

  async #prepare(): Promise<void> {
    await this.#ready()
    await this.identify()
    if (this.#runId === '') throw this.#failure('does not let this user ask INFO', 'not-applied')
  }

  #exchange(requests: readonly ClaimRequest[], isSecondTry = false): Promise<Replies> {
    const isVote = requests.some(({ operation }) => operation === 'acquire')
    return new Promise((resolve, reject) =>
      this.#bound(
        this.#send(requests, isVote ? this.#runId : ''),
        (replies) => resolve(replies ?? this.#askAgain(requests, isSecondTry)),
        reject,
      ),
    )
  }

  /** Another process has answered, and did nothing. */
  async #askAgain(requests: readonly ClaimRequest[], isSecondTry: boolean): Promise<Replies> {
    if (isSecondTry)
      return this.#giveUpOnly(requests, this.#failure('is restarted again and again', 'unknown'))
    try {
      await this.open()
    } catch (error) {
      return this.#giveUpOnly(requests, error as Error)
    }
    return this.#exchange(requests, true)
  }

  /**
   * Other nodes can vote. A lock that is given up must not stay on this node, so the node is told all the same, after the requests
   * that may still land there. The answer is not awaited.
   */
  #giveUpOnly(requests: readonly ClaimRequest[], error: Error): readonly Error[] {
    // Without the run id it is not known which grant is to be released.
    const isKnown = this.#runId !== null
    const givingUp = requests.filter(
      ({ operation }) =>
        operation === 'abandon' || operation === 'close' || (operation === 'release' && isKnown),
    )
    if (givingUp.length > 0) this.#bounded(this.#send(givingUp, '')).catch(ignore)
    return requests.map(() => error)
  }

  /** Null: another process has answered, and did nothing. */
  #send(requests: readonly ClaimRequest[], runId: string | null): Promise<Replies | null> {
    const { script, keys, args } = callOf(requests, this, runId ?? '')
    return this.connection.ask(script, keys, args, (reply, isRepeated) => {
      const replies = reply as readonly RedisReply[]
      if (replies.length !== requests.length) return null
      return replies.map((each) => this.#refusalIn(each, isRepeated) ?? each)
    })
  }

  /** `isRepeated`: the client may have sent it twice, and this may be the answer to the second copy. */
  #refusalIn(reply: RedisReply, isRepeated: boolean): HoldfastError | undefined {
    if (isRepeated && reply === 'not-held')
      return this.#failure(
        'not held, but the connection was lost meanwhile: it may have been released',
        'unknown',
      )
    if (!Array.isArray(reply) || reply[0] !== 'e') return undefined
    const message = String(reply[1]).replace(/\.$/, '')
    if (remedyOf(message) !== null) return this.#refused(message)
    // A server says that its memory is full before anything is written.
    return this.#failure(message, message.includes('OOM command not allowed') ? 'not-applied' : 'unknown')
  }

  #bounded<Reply>(sent: Promise<Reply>): Promise<Reply> {
    return new Promise((resolve, reject) => this.#bound(sent, resolve, reject))
  }

  /** Calls one of the two, `failed` also when the time is up. */
  #bound<Reply>(
    sent: Promise<Reply>,
    answered: (reply: Reply) => void,
    failed: (error: unknown) => void,
  ): void {
    const { clock, timeouts, nodeTimeoutMs } = this.#options
    const request = timeouts.add(() => {
      this.#owed++
      const before = this.#lateMs === undefined ? '' : `; its answer before came after ${this.#lateMs} ms`
      failed(this.#failure(`no answer within ${nodeTimeoutMs} ms${before}`, 'unknown'))
    })
    const isLate = () => {
      const isInTime = timeouts.remove(request)
      this.#lateMs = isInTime ? undefined : Math.ceil(clock.monotonicMs() - request.dueMs + nodeTimeoutMs)
      if (!isInTime) this.#owed--
      return !isInTime
    }
    sent.then(
      (reply) => {
        if (!isLate()) answered(reply)
      },
      (error: unknown) => {
        if (!isLate()) failed(error)
      },
    )
  }

  /** These commands come before the next request in the order of the wire; their answers are not awaited. */
  async #loadScripts(): Promise<void> {
    const [primary] = await this.connection.nodes()
    if (primary === undefined) return
    for (const { source } of allScripts) primary.send(['SCRIPT', 'LOAD', source]).catch(ignore)
    if (this.#isChecked) return
    this.#isChecked = true
    evictionConcern(primary).then(
      (concern) => {
        if (concern !== null) this.#observer?.onConcern(concern)
      },
      // A server that cannot answer this has other troubles, which are told.
      () => {},
    )
  }

  #refused(reason: string): HoldfastError {
    const remedy = remedyOf(reason)
    return remedy === null
      ? this.#failure(reason, 'not-applied')
      : new UnsupportedError(`redlock: ${this.label}: ${reason}. ${remedy}`)
  }

  #failure(what: string, outcome: 'not-applied' | 'unknown'): BackendUnavailableError {
    return new BackendUnavailableError('redlock', `${this.label}: ${what}`, outcome)
  }
}
