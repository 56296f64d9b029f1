/**
 * A session of ZooKeeper. It has one connection at a time; the session and its watches outlive the connection.
 *
 *   attached ──broken, silent──▶ detached ──a request, a watch or a ping is due──▶ attaching      [#reattach]
 *   attached ──prolong──▶ gate closed, drained ──▶ attaching                                      [#attachTo]
 *   attaching ──ConnectReply with this id, and all answers──▶ attached, gate open                 [#attachTo]
 *   attaching ──closed, silent, refused──▶ attaching, at the next member                          [#attach]
 *   any ──ConnectReply with time-out 0 or another id, or -112──▶ gone                             [#over]
 *   any ──drop──▶ closed
 *
 * A request that was not written waits for the next connection; one that was is unknown when its connection ends. A re-attachment never ends
 * the session. Its one write has all that must come before other requests: credentials, pending watches, the requests of its caller.
 */
import { cancelledCall, unlessStopped } from '../../../base/aborting.ts'
import { afterThisTurn, type Instant, instantOf, judgeLate, sleep, type Timer } from '../../../base/clock.ts'
import {
  asNotApplied,
  BackendUnavailableError,
  type HoldfastError,
  isHoldfastError,
} from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { ignore } from '../../../base/ignore.ts'
import { growingPauseMs } from '../../../base/pauses.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import type { Call } from '../../../spi.ts'
import { Asked, type AskedTerms } from './asked.ts'
import { connectionFailure, SESSION_MOVED, unavailable } from './failures.ts'
import {
  type AnyOp,
  type ConnectReply,
  connectFrame,
  nextXid,
  type Op,
  type Refused,
  type Reply,
  type Request,
  readConnect,
} from './messages.ts'
import { type Expected, MemberSocket, type SocketTerms } from './socket.ts'
import { type TreeWatcher, Watches, type WatchTold } from './watches.ts'

export interface SessionTerms extends SocketTerms {
  readonly hosts: readonly string[]
  readonly acl: 'creator' | 'open'
  /** `user:password`. */
  readonly user: Buffer | undefined
  readonly random: Random
  /** The member that served last, for new sessions. */
  readonly preferred: { member: number }
  /** Of all sessions. */
  readonly counts: { sent: number }
}

export type Replies<R extends readonly Request[]> = {
  readonly [I in keyof R]: R[I] extends { readonly op: infer O extends Op } ? Reply<O> : never
}

export interface ProlongedReplies<R extends readonly Request[]> {
  /** Just before the write of the request that prolonged the session. */
  readonly since: Instant
  readonly timeoutMs: number
  readonly replies: Replies<R>
}

/** A request that is given up after so long without any answer on its connection says something about the connection. */
const STUCK_AFTER_MS = 500
const STEP_MS = 50
const PAUSES = { firstMs: 50, longestMs: 2_000 }
/** For one member to open a session. */
const OPEN_LIMIT_MS = 2_000
const [SHORTEST_ATTACH_MS, LONGEST_ATTACH_MS] = [250, 1_000]
/** For one member to attach it again. A keep-alive has a third of the session's time, so two members can be asked in it. */
const attachLimitMs = (timeoutMs: number) =>
  Math.min(LONGEST_ATTACH_MS, Math.max(SHORTEST_ATTACH_MS, timeoutMs / 6))
/** For what is in flight before a re-attachment: a third of a keep-alive's limit. */
const drainLimitMs = (timeoutMs: number) => Math.min(LONGEST_ATTACH_MS, timeoutMs / 9)

/** A session that is kept alive is heard of every third of its time. */
const KEPT_ALIVE = 2 / 3

export class Session {
  /** 0n before it was opened. */
  id: bigint
  /** Just before the ConnectRequest was written; null for a session that another process has opened. */
  since: Instant | null = null
  /** As negotiated; a re-attachment may change it. */
  timeoutMs: number
  readonly #terms: SessionTerms
  readonly #asking: AskedTerms
  /** The same at every attachment: another one would change the session's time. */
  readonly #askedMs: number
  readonly #watches = new Watches()
  #state: 'living' | 'gone' | 'closed' = 'living'
  #member: number
  #connection: MemberSocket | undefined
  /** The newest state that was seen. A member that is behind it does not attach the session. */
  #zxid = 0n
  #xid = 0
  #unsent: Asked[] = []
  #isFlushDue = false
  #isGateClosed = false
  /** Attachments are made one after the other. */
  #attaching: Promise<unknown> = Promise.resolve()
  #attachments = 0
  #failures = 0
  #heardMs: number
  #isPinged = false
  #ping: Timer | undefined
  #pause: Timer | undefined

  /** `id`: 0n for a new one. */
  constructor(terms: SessionTerms, id: bigint, timeoutMs: number) {
    this.id = id
    this.timeoutMs = this.#askedMs = timeoutMs
    this.#terms = terms
    this.#member = terms.preferred.member
    this.#heardMs = terms.clock.monotonicMs()
    this.#asking = { ...terms, onAnswer: (...answer) => this.#answered(...answer) }
  }

  get isGone(): boolean {
    return this.#state === 'gone'
  }

  /** Paths with a pending watch of one event, for tests and measurements. */
  get watched(): number {
    return this.#watches.size
  }

  /** The first attachment. False: the session has gone. */
  async open(call: Call): Promise<boolean> {
    const isNew = this.id === 0n
    const attached = await this.prolong([], call)
    if (attached !== null && isNew) this.since = attached.since
    return attached !== null
  }

  /** Requests of one turn leave together, in their order. */
  ask<O extends Op>(request: Request<O>, call: Call): Promise<Reply<O>> {
    return this.#ask(request, call)
  }

  /**
   * The reply, and a watch of one event. `tell` is called at most once, maybe before the reply was awaited, and never after `unwatch`,
   * also if the reply comes after that.
   * `exists` also watches a node that is missing; `getData` does not.
   */
  watch<O extends 'exists' | 'getData'>(
    request: Request<O>,
    tell: (told: WatchTold) => void,
    call: Call,
  ): Promise<Reply<O>> {
    const { op, path } = request
    return this.#ask(request, call, ({ ok, ...reply }: Reply<O>) => {
      const isMissing = op === 'exists' && 'code' in reply && reply.code === 'no-node'
      if (ok || isMissing) this.#watches.add(path, ok, tell)
    })
  }

  unwatch(path: string, tell: (told: WatchTold) => void): void {
    this.#watches.delete(path, tell)
  }

  /** Watches the node and all below it, for many events. The returned function ends it; null: the session has gone. */
  async watchTree(path: string, watcher: TreeWatcher, call: Call): Promise<(() => void) | null> {
    let isLast = () => false
    const { ok } = await this.#ask({ op: 'addWatch', path }, call, (reply) => {
      if (reply.ok) isLast = this.#watches.addTree(path, watcher)
    })
    const end = () => {
      if (isLast()) this.#ask({ op: 'removeWatches', path }, neverCancelled).catch(ignore)
    }
    return ok ? end : null
  }

  /**
   * Re-attaches the session on a new connection, with these requests behind it. It is prolonged if one of them was a write and was
   * applied: then the member still had its leader. They may be sent more than once. Null: the session has gone.
   */
  prolong<const R extends readonly Request[]>(requests: R, call: Call): Promise<ProlongedReplies<R> | null> {
    this.#attachments++
    const done = this.#attaching
      .then(() => this.#attach(requests, call))
      .finally(() => {
        this.#attachments--
        this.#isGateClosed = false
        this.#resume()
      })
    this.#attaching = done.catch(ignore)
    return unlessStopped(done, (stop) =>
      call.onCancel(() => stop(cancelledCall(this.#terms.backend, call.signal, 'unknown'))),
    )
  }

  /** For a session that is not prolonged otherwise. Pings prove nothing about claims (T62, answers of a follower that is cut off). */
  startPings(): void {
    this.#isPinged = true
    this.#pingLater()
  }

  /** Ends the session, and deletes its ephemeral nodes. */
  async end(call: Call): Promise<void> {
    await this.#ask({ op: 'closeSession' }, call)
    this.#over('gone')
  }

  /** Closes the connection. The session lives on until its time is up. */
  drop(): void {
    this.#over('closed')
    this.#connection?.destroy('the session was closed')
  }

  async #ask<O extends AnyOp>(
    request: Request<O>,
    call: Call,
    onReply?: (reply: Reply<O>) => void,
  ): Promise<Reply<O>> {
    const { backend, clock } = this.#terms
    if (call.cancelled) throw cancelledCall(backend, call.signal, 'not-applied')
    const asked = new Asked(request, this.#asking, onReply)
    if (this.#state !== 'living') asked.settle(this.#refusal())
    else {
      this.#unsent.push(asked)
      this.#flushSoon()
    }
    const untie = call.onCancel(() => {
      const { sent } = asked
      asked.settle(cancelledCall(backend, call.signal, sent === undefined ? 'not-applied' : 'unknown'))
      if (sent === undefined || clock.monotonicMs() - sent.atMs < STUCK_AFTER_MS) return
      // If this process itself was late, the answer may be there and not yet read.
      afterThisTurn(() => this.#leaveIfSilent(sent.connection, sent.answers))
    })
    return asked.answer.finally(untie)
  }

  #answered(...[zxid, error, outcome]: Parameters<AskedTerms['onAnswer']>): void {
    this.#heardMs = this.#terms.clock.monotonicMs()
    if (zxid > this.#zxid) this.#zxid = zxid
    if (error === SESSION_MOVED) this.#connection?.destroy('another connection has the session')
    if (!(outcome instanceof Error) && !outcome.ok && outcome.code === 'session-gone') this.#over('gone')
  }

  #refusal(): Refused | HoldfastError {
    if (this.isGone) return { ok: false, zxid: this.#zxid, code: 'session-gone' }
    return unavailable(this.#terms.backend, 'the session was closed', 'not-applied')
  }

  #leaveIfSilent(connection: MemberSocket, answers: number): void {
    if (!connection.isOpen || connection.answers > answers) return
    this.#member++
    connection.destroy(`${connection.host} was silent`)
  }

  #flushSoon(): void {
    if (this.#isFlushDue) return
    this.#isFlushDue = true
    queueMicrotask(() => {
      this.#isFlushDue = false
      this.#flush()
    })
  }

  /** Everything that waits leaves in one write. */
  #flush(): void {
    if (this.#isGateClosed || this.#unsent.length === 0) return
    const connection = this.#connection
    const silentMs = this.#terms.clock.monotonicMs() - this.#heardMs
    // Another process may have the session by now, and a request on this connection would be unknown.
    if (connection?.isIdle && silentMs > this.timeoutMs * KEPT_ALIVE) connection.destroy('it was not used')
    if (!connection?.isOpen) {
      this.#reattach()
      return
    }
    const leaving = this.#unsent.splice(0).filter(({ isSettled }) => !isSettled)
    connection.write(Buffer.concat(this.#framesOf(leaving, connection)), leaving)
  }

  #framesOf(leaving: readonly Asked[], connection: MemberSocket): Buffer[] {
    const sent = { connection, atMs: this.#terms.clock.monotonicMs(), answers: connection.answers }
    this.#terms.counts.sent += leaving.length
    return leaving.map((asked) => {
      asked.sent = sent
      this.#xid = nextXid(this.#xid)
      return asked.frame(this.#xid)
    })
  }

  /** After the connection was lost: at once if requests wait, soon if something is watched or the session is kept alive. */
  #resume(): void {
    if (this.#state !== 'living' || this.#attachments > 0) return
    if (this.#unsent.some(({ isSettled }) => !isSettled)) this.#flush()
    else if (!this.#connection?.isOpen && (this.#watches.size > 0 || this.#isPinged)) {
      const { clock, random } = this.#terms
      const pauseMs = growingPauseMs(this.#failures, PAUSES) * (0.5 + random.fraction() / 2)
      this.#pause?.cancel()
      this.#pause = clock.setTimer(pauseMs, () => this.#reattach())
    }
  }

  #reattach(): void {
    if (this.#state !== 'living' || this.#attachments > 0 || this.#connection?.isOpen) return
    this.prolong([], neverCancelled).catch(ignore)
  }

  /** Each member once, and the first one twice: another connection may have had the session for a moment. */
  async #attach<R extends readonly Request[]>(requests: R, call: Call): Promise<ProlongedReplies<R> | null> {
    const { hosts, preferred, clock, random } = this.#terms
    for (let tries = 0; !this.isGone; tries++) {
      try {
        const attached = await this.#attachTo(hosts[this.#member % hosts.length] ?? '', requests, call)
        this.#failures = 0
        preferred.member = this.#member
        return this.isGone ? null : attached
      } catch (error) {
        this.#member++
        this.#failures++
        const isUseless = !isHoldfastError(error, 'BACKEND_UNAVAILABLE')
        if (isUseless || tries >= hosts.length) this.#unreachable(error)
        if (isUseless || tries >= hosts.length || call.cancelled || this.#state === 'closed') throw error
        // Two clients that take a session from each other must not go on in step.
        await sleep(clock, random.fraction() * STEP_MS)
      }
    }
    return null
  }

  /** Waiting requests were not sent. A session that lives by pings has no claims; after its time it is as good as gone. */
  #unreachable(error: unknown): void {
    const { backend, clock } = this.#terms
    if (this.#connection?.isOpen) return
    const silentMs = clock.monotonicMs() - this.#heardMs
    if (this.#isPinged && silentMs > this.timeoutMs) this.#over('gone')
    const failure = isHoldfastError(error) ? error : unavailable(backend, String(error), 'not-applied', error)
    const told = failure instanceof BackendUnavailableError ? asNotApplied(failure) : failure
    for (const asked of this.#unsent.splice(0)) asked.settle(told)
  }

  /** A failure before the gate is closed leaves the connection that there is. */
  async #attachTo<R extends readonly Request[]>(
    host: string,
    requests: R,
    call: Call,
  ): Promise<ProlongedReplies<R> | null> {
    const { backend, clock } = this.#terms
    const limitMs = this.id === 0n ? OPEN_LIMIT_MS : attachLimitMs(this.timeoutMs)
    const connection = await MemberSocket.open(host, this.#terms, limitMs)
    const isOver = () => call.cancelled || this.#state === 'closed'
    if (!isOver()) await this.#closeGate()
    if (isOver()) {
      connection.destroy('it is not needed')
      throw unavailable(backend, 'the call or the session was ended before it was attached', 'not-applied')
    }
    this.#connection?.destroy('the session has another connection')
    this.#connection = connection
    const onEnd = () => {
      if (this.#connection !== connection) return
      this.#watches.loseTrees()
      this.#resume()
    }
    connection.listen({ onEvent: (event) => this.#watches.told(event), onEnd })
    let isSilent = false
    const limit = judgeLate(clock, limitMs, () => {
      isSilent = true
      connection.destroy(`${host} has not attached the session within ${limitMs} ms`)
    })
    const untie = call.onCancel(() => connection.destroy('the call was cancelled'))
    try {
      return await this.#exchange(connection, requests)
    } catch (error) {
      connection.destroy(`${host} has not attached the session`)
      const { cause } = error as Error
      if (this.id !== 0n || connection.answers > 0 || isOver()) throw error
      // Nothing was asked but for a session.
      const dialled = { host, isSecure: this.#terms.tls !== undefined, isConnected: true }
      const why = cause instanceof Error ? cause : isSilent ? 'silent' : 'closed'
      throw unavailable(backend, connectionFailure(dialled, why), 'not-applied', error)
    } finally {
      limit.cancel()
      untie()
    }
  }

  /** New requests wait. What is in flight would be lost with its connection. */
  #closeGate(): Promise<void> {
    this.#isGateClosed = true
    return new Promise((resolve) => {
      const timer = judgeLate(this.#terms.clock, drainLimitMs(this.timeoutMs), () => resolve())
      const done = () => {
        timer.cancel()
        resolve()
      }
      if (this.#connection === undefined) done()
      else this.#connection.whenIdle(done)
    })
  }

  async #exchange<R extends readonly Request[]>(
    connection: MemberSocket,
    requests: R,
  ): Promise<ProlongedReplies<R> | null> {
    const { backend, clock, user } = this.#terms
    const zxid = this.#zxid
    const own: Request<AnyOp>[] = user === undefined ? [] : [{ op: 'auth', user }]
    for (const part of this.#watches.parts()) own.push({ op: 'setWatches', zxid, ...part })
    const all = [...own, ...requests].map((request) => new Asked<AnyOp>(request, this.#asking))
    const answers = Promise.all(all.map(({ answer }) => answer))
    answers.catch(ignore)
    const connected = Promise.withResolvers<ConnectReply>()
    const connecting: Expected = {
      xid: null,
      answered: (_zxid, _error, body) => connected.resolve(readConnect(body)),
      lost: connected.reject,
    }
    this.#terms.counts.sent++
    const frames = [connectFrame(zxid, this.#askedMs, this.id), ...this.#framesOf(all, connection)]
    const bytes = Buffer.concat(frames)
    const since = instantOf(clock)
    connection.write(bytes, [connecting, ...all])

    const { timeoutMs, id, isReadOnly } = await connected.promise
    if (isReadOnly) throw unavailable(backend, `${connection.host} is read-only`, 'not-applied')
    // A server may also make a new session, instead of saying that there is none.
    if (timeoutMs <= 0 || (this.id !== 0n && id !== this.id)) {
      this.#over('gone')
      connection.destroy('the session has gone')
      return null
    }
    this.id = id
    this.timeoutMs = timeoutMs
    this.#heardMs = clock.monotonicMs()
    const replies = (await answers).slice(own.length) as Replies<R>
    return { since, timeoutMs, replies }
  }

  #pingLater(): void {
    const { clock } = this.#terms
    const connection = this.#connection
    const answers = connection?.answers ?? 0
    this.#ask({ op: 'ping' }, neverCancelled).catch(ignore)
    this.#ping = judgeLate(clock, this.timeoutMs / 3, () => {
      if (connection !== undefined) this.#leaveIfSilent(connection, answers)
      if (this.#state === 'living') this.#pingLater()
    })
  }

  #over(state: 'gone' | 'closed'): void {
    if (this.#state !== 'living') return
    this.#state = state
    this.#ping?.cancel()
    this.#pause?.cancel()
    for (const asked of this.#unsent.splice(0)) asked.settle(this.#refusal())
    this.#watches.loseAll()
    // The server closes it, too.
    const connection = this.#connection
    connection?.whenIdle(() => connection.destroy('the session has gone'))
  }
}
