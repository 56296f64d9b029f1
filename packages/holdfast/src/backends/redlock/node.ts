/**
 * One of the servers, asked with a time-out of its own, which starts when it is connected (`contact.ts`).
 *
 *   answering ──no answer within the time-out──▶ silent ──the answer comes, or the connection fails──▶ answering
 *
 * Commands of one connection are answered in order, so a node that owes an answer would owe the next one as well: it is
 * not asked again before it has paid, and what it was not asked has certainly not been applied. So a dead node costs one
 * time-out and not one for each call. Only what cleans up is sent to a silent node (`tell`, `insist`): it then comes right
 * behind whatever may still land there.
 *
 * Votes are asked of a certain process, by its run id. Another one under the same address does nothing and says so; it is
 * looked at (`learn`), and asked again.
 */

import type { Clock } from '../../base/clock.ts'
import { BackendUnavailableError, type HoldfastError, UnsupportedError } from '../../base/errors.ts'
import {
  type Concern,
  evictionConcern,
  type Readiness,
  type RedisConnection,
  type RedisReply,
  type RedisScript,
  remedyOf,
} from '../../clients/redis/index.ts'
import { neverCancelled } from '../../kit/backend-kit.ts'
import { Lane } from '../../kit/lane.ts'
import { Contact } from './contact.ts'
import { Deadlines } from './deadlines.ts'
import { bootKey } from './layout.ts'
import { allScripts, claimsScript, standingScript } from './scripts.ts'

/** A part of a call of `claimsScript`. */
export interface Item {
  readonly word: 'acquire' | 'release' | 'abandon' | 'mend'
  readonly session: string
  readonly lock: string
  /** The owner first. */
  readonly args: readonly string[]
}

export interface ItemAnswer {
  /** Which process answered; empty if the server does not tell. */
  readonly runId: string
  /** For how much longer its votes do not count. */
  readonly quarantinedForMs: number
  readonly reply: RedisReply
}

export interface NodeOptions {
  readonly connection: RedisConnection
  readonly readiness: Readiness
  /** For messages: `node 2 of 5`. */
  readonly label: string
  readonly clock: Clock
  readonly connectTimeoutMs: number
  readonly timeoutMs: number
  readonly quarantineMs: number
}

export interface NodeObserver {
  /** It can be asked, for the first time or again. */
  onOpen(): void
  /** Something about the server that can cost locks. */
  onConcern(concern: Concern): void
}

const LARGEST_BATCH = 128
const MAYBE_RELEASED = ['e', 'not held, but the connection was lost meanwhile: it may have been released']

export class RedlockNode {
  readonly connection: RedisConnection
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #quarantineMs: number
  readonly #deadlines: Deadlines
  readonly #lane: Lane<Item, ItemAnswer>
  readonly label: string
  readonly #contact: Contact
  #observer: NodeObserver | undefined
  #hasBeenLookedAt = false
  #owed = 0
  /** How long the last answer took that came too late; undefined when answers come in time. */
  #lateMs: number | undefined
  #runId: string | null = null
  #countsFromMs = 0

  constructor(options: NodeOptions) {
    const { connection, readiness, label, clock, connectTimeoutMs, timeoutMs, quarantineMs } = options
    this.connection = connection
    this.label = `${label} (${connection.address.replace(/\/\d+$/, '')})`
    this.#clock = clock
    this.#timeoutMs = timeoutMs
    this.#quarantineMs = quarantineMs
    this.#deadlines = new Deadlines(clock, timeoutMs)
    this.#lane = new Lane({
      backend: 'redlock',
      clock,
      maxBatch: LARGEST_BATCH,
      send: (items) => this.#askTogether(items),
    })
    this.#contact = new Contact({
      readiness,
      clock,
      connectTimeoutMs,
      nodeTimeoutMs: timeoutMs,
      greet: () => this.#greet(),
      onOpen: () => this.#observer?.onOpen(),
      failure: (reason) => this.#unreachable(reason),
    })
  }

  observe(observer: NodeObserver): void {
    this.#observer = observer
  }

  /** Its answers are late: it owes one, or the last one that it owed took too long. */
  get isSlow(): boolean {
    return this.isSilent || this.#lateMs !== undefined
  }

  get isSilent(): boolean {
    return this.#owed > 0
  }

  /** The process that was looked at last; null before the first look. */
  get runId(): string | null {
    return this.#runId
  }

  /** For how much longer the votes of the process that was looked at last do not count. */
  get quarantinedForMs(): number {
    return Math.max(0, this.#countsFromMs - this.#clock.monotonicMs())
  }

  /** Connected, and owing nothing. */
  get isAnswering(): boolean {
    return this.#contact.isOpen && !this.isSilent
  }

  get isConnected(): boolean {
    return this.#contact.isOpen
  }

  /** Rejects when it cannot be had. */
  async reach(): Promise<void> {
    await this.#contact.reach()
  }

  /** A majority is connected: nobody waits for the first connection of this one for longer than a time-out. */
  hurry(): void {
    this.#contact.hurry()
  }

  close(): void {
    this.#contact.close()
    this.connection.close()
  }

  /** What the server has said of itself: run id, and for how much longer its votes do not count. */
  learn(runId: string, quarantinedForMs: number): void {
    this.#runId = runId
    this.#countsFromMs = this.#clock.monotonicMs() + quarantinedForMs
  }

  /** Before a grant is named to it: by its run id a node is told when it made the grant. */
  async identify(): Promise<void> {
    if (this.#runId === null) await this.#look()
  }

  /** In order with everything else that is asked; what is asked meanwhile leaves together. */
  ask(item: Item): Promise<ItemAnswer> {
    return this.#lane.ask(item, neverCancelled)
  }

  /** At once, also when it is silent. Not for votes. */
  async tell(item: Item): Promise<RedisReply> {
    const [reply] = await this.#send([item], '')
    if (reply === undefined) throw this.#failure('gave an answer that is none', 'unknown')
    const refused = this.#refusalIn(reply)
    if (refused !== undefined) throw refused
    return reply
  }

  /** A script of its own. */
  async run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<RedisReply> {
    if (this.isSilent) throw this.#notAsked()
    const reaching = this.#contact.reach()
    if (reaching !== undefined) await reaching
    return this.#bounded(this.connection.run(script, keys, args))
  }

  /** The same, also when it is silent. */
  insist(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<RedisReply> {
    return this.#bounded(this.connection.run(script, keys, args))
  }

  /**
   * As `run`, for an operator's call that answers 1 if it did something. Rejects if the client may have sent it twice and the
   * answer is another one: the first copy may have done it.
   */
  async operate(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<number> {
    const losses = this.connection.lossCount()
    const answer = Number(await this.run(script, keys, args))
    if (answer !== 1 && losses !== this.connection.lossCount())
      throw this.#failure('the connection was lost meanwhile: it may have been done', 'unknown')
    return answer
  }

  /** A plain command. */
  async send(args: readonly string[]): Promise<RedisReply> {
    if (this.isSilent) throw this.#notAsked()
    await this.#contact.reach()
    const [primary] = await this.connection.nodes()
    if (primary === undefined) throw this.#failure('has no primary', 'not-applied')
    return this.#bounded(primary.send(args))
  }

  async #askTogether(items: readonly Item[]): Promise<readonly (ItemAnswer | Error)[]> {
    const isVote = items.some(({ word }) => word === 'acquire')
    try {
      await this.#prepare(isVote)
    } catch (error) {
      return this.#cleanUpOnly(items, error)
    }
    let replies = await this.#send(items, isVote ? (this.#runId ?? '') : '')
    if (replies.length === 0) {
      try {
        await this.#look()
      } catch (error) {
        return this.#cleanUpOnly(items, error)
      }
      replies = await this.#send(items, this.#runId ?? '')
    }
    if (replies.length !== items.length)
      return this.#cleanUpOnly(items, this.#failure('is restarted again and again', 'unknown'))
    return replies.map((reply) => this.#answered(reply))
  }

  /** Rejects if it cannot be asked now; certainly nothing was applied then. */
  async #prepare(isVote: boolean): Promise<void> {
    if (this.isSilent) throw this.#notAsked()
    const reaching = this.#contact.reach()
    if (reaching !== undefined) await reaching
    if (isVote && this.#runId === null) await this.#look()
    if (isVote && this.#runId === '') throw this.#failure('does not let this user ask INFO', 'not-applied')
  }

  /**
   * Votes can be had elsewhere. What was to be given back here would be kept from everybody, so it is told all the same;
   * nobody waits for the answer of a node that owes others already.
   */
  #cleanUpOnly(items: readonly Item[], error: unknown): readonly Error[] {
    for (const item of items)
      if (item.word === 'release' || item.word === 'abandon') this.tell(item).catch(() => {})
    return items.map(() => error as Error)
  }

  #answered(reply: RedisReply): ItemAnswer | Error {
    const error = this.#refusalIn(reply)
    if (error !== undefined) return error
    return { runId: this.#runId ?? '', quarantinedForMs: this.quarantinedForMs, reply }
  }

  /** What the server said when it refused a command of one item; that its memory is full it says before anything is written. */
  #refusalIn(reply: RedisReply): BackendUnavailableError | undefined {
    if (!Array.isArray(reply) || reply[0] !== 'e') return undefined
    const message = String(reply[1]).replace(/\.$/, '')
    return this.#failure(message, message.includes('OOM command not allowed') ? 'not-applied' : 'unknown')
  }

  async #send(items: readonly Item[], runId: string): Promise<readonly RedisReply[]> {
    const keys: string[] = []
    const args = [runId]
    for (const item of items) {
      keys.push(item.session, item.lock)
      args.push(item.word, ...item.args)
    }
    const losses = this.connection.lossCount()
    const replies = (await this.#bounded(
      this.connection.run(claimsScript, keys, args),
    )) as readonly RedisReply[]
    // The client may have sent it twice: then the first copy released, and this is the answer to the second.
    return losses === this.connection.lossCount()
      ? replies
      : replies.map((reply) => (reply === 'not-held' ? MAYBE_RELEASED : reply))
  }

  async #look(): Promise<void> {
    const args = [String(this.#quarantineMs)]
    const [runId, quarantinedForMs] = (await this.run(
      standingScript,
      [bootKey],
      args,
    )) as readonly RedisReply[]
    this.learn(String(runId), Number(quarantinedForMs))
  }

  /** In the order of the wire this comes before whatever is asked next; nobody waits for the answers. */
  async #greet(): Promise<void> {
    const [primary] = await this.connection.nodes()
    if (primary === undefined) return
    for (const { source } of allScripts) primary.send(['SCRIPT', 'LOAD', source]).catch(() => {})
    if (this.#hasBeenLookedAt) return
    this.#hasBeenLookedAt = true
    evictionConcern(primary).then(
      (concern) => {
        if (concern !== null) this.#observer?.onConcern(concern)
      },
      // Whoever cannot answer this has other troubles, which are told.
      () => {},
    )
  }

  #bounded(sent: Promise<RedisReply>): Promise<RedisReply> {
    return new Promise((resolve, reject) => {
      let isLate = false
      const sentAtMs = this.#clock.monotonicMs()
      const deadline = this.#deadlines.add(() => {
        isLate = true
        this.#owed++
        reject(this.#failure(this.#noAnswer(), 'unknown'))
      })
      const settle = () => {
        deadline.isOver = true
        if (isLate) this.#owed--
        const tookMs = Math.ceil(this.#clock.monotonicMs() - sentAtMs)
        this.#lateMs = tookMs > this.#timeoutMs ? tookMs : undefined
      }
      sent.then(
        (reply) => {
          settle()
          resolve(reply)
        },
        (error: unknown) => {
          settle()
          reject(error)
        },
      )
    })
  }

  #noAnswer(): string {
    const before = this.#lateMs === undefined ? '' : `; its answer before came after ${this.#lateMs} ms`
    return `no answer within ${this.#timeoutMs} ms${before}`
  }

  #notAsked(): BackendUnavailableError {
    return this.#failure('not asked, because it owes an answer', 'not-applied')
  }

  #unreachable(reason: string): HoldfastError {
    const remedy = remedyOf(reason)
    return remedy === null
      ? this.#failure(reason, 'not-applied')
      : new UnsupportedError(`redlock: ${this.label}: ${reason}. ${remedy}`)
  }

  #failure(what: string, outcome: 'not-applied' | 'unknown'): BackendUnavailableError {
    return new BackendUnavailableError('redlock', `${this.label}: ${what}`, outcome)
  }
}
