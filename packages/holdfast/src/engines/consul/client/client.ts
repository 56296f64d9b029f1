/**
 * A client for a cluster of Consul: one member at a time (`kit/members.ts`). It moves to another member when this one knows no leader,
 * cannot be reached, or leaves requests unanswered.
 *
 * A request goes to another member if it was certainly not applied, or if it only reads. A request that may be applied twice is asked
 * again while its call lasts (`kit/asking-again.ts`): Consul answers nothing while the leader to which it has passed a write is stopped.
 * Every other request is sent once. Every request settles, whatever the other side does, within `ANSWER_LIMIT_MS` after its last copy.
 */
import { cancelledCall } from '../../../base/aborting.ts'
import type { Clock } from '../../../base/clock.ts'
import { HoldfastError, InvalidArgumentError } from '../../../base/errors.ts'
import { askAgain } from '../../../kit/asking-again.ts'
import { asFailedRead, ConnectionError, malformed } from '../../../kit/connect-failure.ts'
import { Members } from '../../../kit/members.ts'
import type { Call } from '../../../spi.ts'
import {
  asUnavailable,
  ConsulError,
  connectionFailure,
  isBeforeElection,
  isDenied,
  isForAnotherMember,
} from './failures.ts'
import { ANSWER_LIMIT_MS, type ConsulTls, type HttpAnswer, type HttpRequest, Member } from './member.ts'
import { type Operation, type Transacted, transacted } from './messages.ts'

export interface ConsulClientOptions {
  /** `http://host:port` or `https://host:port`, in the order in which they are tried. */
  readonly hosts: readonly string[]
  readonly tls?: ConsulTls
  /** The secret of an ACL token. */
  readonly token?: string
  /** By default that of the member. */
  readonly datacenter?: string
  /** Of Consul Enterprise. */
  readonly ns?: string
  readonly partition?: string
}

export interface Question<R> {
  readonly method: HttpRequest['method']
  /** With what follows a `?`. */
  readonly path: string
  readonly body?: object
  readonly isRead: boolean
  /** Statuses that answer it, besides 200. */
  readonly also?: readonly number[]
  /** Throws if the body cannot be the answer. `body`: as JSON, or the text of another status than 200 and 409. */
  readonly read: (status: number, body: unknown, member: Member, answer: HttpAnswer) => R
}

/** For the first answer of a member. Others are tried after it. */
const CONNECT_LIMIT_MS = 1_000
/** A write takes some milliseconds; an election one to three seconds, and with Consul's defaults up to ten. */
const AGAIN_AFTER_MS = 1_500

export class ConsulClient {
  readonly backend: string
  readonly hosts: readonly string[]
  readonly #options: ConsulClientOptions
  readonly #common: string
  readonly #clock: Clock
  readonly #members: Members<Member>
  /** Requests and polls that were sent, for tests and measurements. */
  sent = 0

  constructor(backend: string, options: ConsulClientOptions, clock: Clock) {
    checkOptions(options)
    const { hosts, datacenter: dc, ns, partition } = options
    const given = Object.entries({ dc, ns, partition }).filter(([, value]) => value !== undefined)
    this.#common = new URLSearchParams(given as [string, string][]).toString()
    this.backend = backend
    this.hosts = hosts
    this.#options = options
    this.#clock = clock
    const notSent = (why: string) => new ConnectionError(why, 'not-applied')
    const open = (host: string) => this.#open(host)
    this.#members = new Members({ backend, hosts, clock, open, notSent, isForAnotherMember })
  }

  /** Requests that are not settled on the current member, for tests. */
  get inFlight(): number {
    return this.#members.current?.inFlight ?? 0
  }

  get isClosed(): boolean {
    return this.#members.isClosed
  }

  /** `onAgain`: it may be applied twice. It is called before each copy but the first. */
  async ask<R>(question: Question<R>, call: Call, onAgain?: () => void): Promise<R> {
    const untilMs = this.#clock.monotonicMs() + ANSWER_LIMIT_MS
    const asTold = (error: unknown) => asUnavailable(this.backend, error)
    const send = (copy: Call, onSilence?: () => void) =>
      this.#members.ask((member) => this.#askOn(member, question, copy, onSilence), untilMs, copy)
    try {
      if (!question.isRead && onAgain === undefined) return await send(call)
      const isOver = () => this.isClosed
      const terms = { backend: this.backend, clock: this.#clock, send, onAgain, untilMs, isOver, asTold }
      return await askAgain({ ...terms, isForAnotherMember, isBeforeElection }, call)
    } catch (error) {
      throw asTold(error)
    }
  }

  /** `isConsistent`: the leader asks a majority whether it still is one, before it reads. */
  transact(
    operations: readonly Operation[],
    call: Call,
    {
      onAgain,
      isConsistent = false,
    }: { readonly onAgain?: () => void; readonly isConsistent?: boolean } = {},
  ): Promise<Transacted & { readonly member: Member }> {
    const question: Question<Transacted & { readonly member: Member }> = {
      method: 'PUT',
      path: isConsistent ? '/v1/txn?consistent' : '/v1/txn',
      body: operations,
      isRead: operations.every(({ KV }) => /^(get|check)/.test(KV.Verb)),
      also: [409],
      read: (status, body, member) => {
        const answer = transacted(status, body)
        if (isDenied(answer.refused?.what)) throw new ConsulError(403, answer.refused?.what ?? '')
        return { ...answer, member }
      },
    }
    return this.ask(question, call, onAgain)
  }

  /** Asks one member, once, and with a limit of its own. A member whose poll fails is left. */
  async poll<R>(question: Question<R>, limitMs: number, call: Call): Promise<R> {
    const member = await this.#members.connected(call)
    try {
      this.sent++
      return this.#read(
        question,
        member,
        await member.ask({ ...this.#request(question), isPoll: true }, limitMs).answer,
      )
    } catch (error) {
      if (!(error instanceof HoldfastError)) this.#members.leave(member)
      throw error
    }
  }

  /** Asks one member, on connections of its own. */
  async askMember<R>(host: string, question: Question<R>, call: Call): Promise<R> {
    let member: Member | undefined
    try {
      member = await this.#open(host)
      return await this.#askOn(member, question, call)
    } catch (error) {
      throw asUnavailable(this.backend, error)
    } finally {
      member?.destroy()
    }
  }

  close(): void {
    this.#members.close()
  }

  async #askOn<R>(member: Member, question: Question<R>, call: Call, onSilence?: () => void): Promise<R> {
    if (call.cancelled) throw cancelledCall(this.backend, call.signal, 'not-applied')
    this.sent++
    const silence = onSilence && { ms: AGAIN_AFTER_MS, tell: onSilence }
    const ask = () => member.ask(this.#request(question))
    try {
      return this.#read(question, member, await this.#members.answered(member, ask, call, silence))
    } catch (error) {
      throw question.isRead ? asFailedRead(error) : error
    }
  }

  #request({ method, path, body }: Question<unknown>): HttpRequest {
    const whole = this.#common === '' ? path : `${path}${path.includes('?') ? '&' : '?'}${this.#common}`
    return { method, path: whole, ...(body !== undefined && { body: JSON.stringify(body) }) }
  }

  #read<R>({ read, also = [] }: Question<R>, member: Member, answer: HttpAnswer): R {
    const { status, text } = answer
    if (status !== 200 && !also.includes(status)) throw new ConsulError(status, text)
    try {
      return read(status, status === 200 || status === 409 ? JSON.parse(text) : text, member, answer)
    } catch (error) {
      if (error instanceof HoldfastError || error instanceof ConsulError) throw error
      this.#members.leave(member)
      throw malformed(member.host, error)
    }
  }

  /** It is open when it says who the leader is. So what listens there and is not Consul, or is stopped, is found out first. */
  async #open(host: string): Promise<Member> {
    const member = new Member(host, this.#options.tls, this.#options.token, this.#clock)
    try {
      const asked = member.ask({ method: 'GET', path: '/v1/status/leader' }, CONNECT_LIMIT_MS)
      const { status, text } = await asked.answer
      if (status >= 500 || status === 429) throw new ConsulError(status, text)
      const leader: unknown = status === 200 ? JSON.parse(text) : undefined
      if (leader === '') throw new ConsulError(status, `${host} knows no leader`)
      if (typeof leader !== 'string') throw new Error(`its answer has status ${status}`)
      return member
    } catch (error) {
      member.destroy()
      throw new ConnectionError(whyNotOpen(host, error), 'not-applied', { cause: error })
    }
  }
}

function whyNotOpen(host: string, error: unknown): string {
  if (error instanceof ConsulError) return error.message
  if (!(error instanceof ConnectionError)) return connectionFailure(host, true, error as Error)
  return connectionFailure(host, error.outcome === 'unknown', (error.cause as Error | undefined) ?? 'silent')
}

function checkOptions({ hosts, token }: ConsulClientOptions): void {
  const isUrl = (host: unknown) => typeof host === 'string' && /^https?:\/\/[^/@]+$/.test(host)
  if (!Array.isArray(hosts) || hosts.length === 0 || !hosts.every(isUrl))
    throw new InvalidArgumentError(
      'hosts',
      'must be a list of URLs such as http://127.0.0.1:8500, without a path.',
    )
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token))
    throw new InvalidArgumentError('token', 'must be the secret of a token, which is printable ASCII.')
}
