/**
 * The member of a cluster that a client uses: one connection at a time, which callers share.
 *
 *   none ──a call──▶ connecting ──one member has accepted──▶ connected           [connected]
 *   connecting ──all members have failed──▶ none                                 [#connect]
 *   connected ──it does not serve, is silent or closed──▶ none, and the next member is meant   [leave]
 *
 * Failures that arrive together move on once: only the current connection is left (T101, the healthy member is skipped). No call ends
 * the connecting that others share (T102, shared work). A request goes to another member only if it was certainly not applied.
 */
import { cancelledCall, unlessStopped } from '../base/aborting.ts'
import { afterThisTurn, type Clock, judgeLate, type Timer } from '../base/clock.ts'
import type { Call } from '../spi.ts'

export interface MemberConnection {
  readonly host: string
  readonly isOpen: boolean
  /** Grows with every answer, and every piece of one. A request that is unanswered while it stands still may never be answered. */
  readonly answers: number
  /** Requests and streams that are not settled. */
  readonly inFlight: number
  /** Takes no new requests. Those in flight may still be answered, for a bounded time. */
  leave(): void
  destroy(): void
}

export interface MembersOptions<C extends MemberConnection> {
  readonly backend: string
  /** In the order in which they are tried. */
  readonly hosts: readonly string[]
  readonly clock: Clock
  /** Settles within a bound of its own, also if the member says nothing. */
  readonly open: (host: string) => Promise<C>
  /** The error of a request that was not sent. */
  readonly notSent: (why: string) => Error
  /** Whether the request was certainly not applied, and another member may accept it. */
  readonly isForAnotherMember: (error: unknown) => boolean
}

/** A request in flight. `cancel` gives it up. */
export interface Asked<R> {
  readonly answer: Promise<R>
  readonly cancel: () => void
  /** How much of the answer has come, in pieces of any size. */
  readonly pieces: () => number
}

/** The asker is told when no part of an answer has come for `ms`, such as 1,000 with etcd. */
export interface Silence {
  readonly ms: number
  readonly tell: () => void
}

/** A request that was given up after so long without any answer on its connection says something about the connection. */
const STUCK_AFTER_MS = 500
/** A member that was silent for so long is passed over for a while: in an election the others are asked again and again, and answer at once. */
const PASSED_OVER_MS = 3_000

export class Members<C extends MemberConnection> {
  readonly #options: MembersOptions<C>
  /** Which host is connected to next. */
  #next = 0
  #connecting: Promise<C> | undefined
  /** The one to which `#connecting` has led. */
  #current: C | undefined
  /** Until when a member that was silent is passed over. */
  readonly #silent = new Map<string, number>()
  /** Connections that were left while something was in flight on them. */
  readonly #left = new Set<C>()
  #isClosed = false

  constructor(options: MembersOptions<C>) {
    this.#options = options
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  get current(): C | undefined {
    return this.#current
  }

  /** The current connection, or the first that can be made. */
  async connected(call: Call): Promise<C> {
    const { backend, hosts, notSent } = this.#options
    for (let tries = 1; ; tries++) {
      if (this.#isClosed) throw notSent('the client is closed')
      this.#connecting ??= this.#connect().catch((error) => {
        this.#connecting = undefined
        throw error
      })
      const connection = await unlessStopped(this.#connecting, (stop) =>
        call.onCancel(() => stop(cancelledCall(backend, call.signal, 'not-applied'))),
      )
      if (connection.isOpen) return connection
      // A stopped member would accept the next connection, too.
      this.leave(connection)
      if (tries > hosts.length) throw notSent(`${connection.host} closes each connection at once`)
    }
  }

  /** The connection does not serve. The first caller that says so moves the next request to another member. */
  leave(connection: C): void {
    connection.leave()
    if (this.#current !== connection) return
    this.#current = undefined
    this.#connecting = undefined
    this.#next++
    for (const left of this.#left) if (left.inFlight === 0) this.#left.delete(left)
    this.#left.add(connection)
  }

  /** Asks one member, and then others for as long as they refuse, each of them once. No other is asked after `untilMs`. */
  async ask<R>(ask: (connection: C) => Promise<R>, untilMs: number, call: Call): Promise<R> {
    const { hosts, clock, isForAnotherMember } = this.#options
    for (let asked = 1; ; asked++) {
      const connection = await this.connected(call)
      try {
        return await ask(connection)
      } catch (error) {
        const isLast = asked >= hosts.length || call.cancelled || clock.monotonicMs() >= untilMs
        if (isLast || !isForAnotherMember(error)) throw error
        this.leave(connection)
      }
    }
  }

  /**
   * The answer, unless the call is cancelled. Then, and after `silence.ms`, the connection is left if it has been silent for long: a
   * request of 600 ms that is given up leaves it, if nothing else was answered on it meanwhile.
   */
  answered<R>(connection: C, ask: () => Asked<R>, call: Call, silence?: Silence): Promise<R> {
    const { backend, clock } = this.#options
    const answersBefore = connection.answers
    const sentMs = clock.monotonicMs()
    const { answer, cancel, pieces } = ask()
    const leaveIfStuck = () => {
      const isLong = clock.monotonicMs() - sentMs >= STUCK_AFTER_MS
      if (isLong && connection.answers === answersBefore) this.leave(connection)
    }
    let timer: Timer | undefined
    // A large answer may take longer. Asked for once more, it would come later.
    const listen = (before: number, { ms, tell }: Silence) => {
      timer = judgeLate(clock, ms, () => {
        if (pieces() > before) return listen(pieces(), { ms, tell })
        leaveIfStuck()
        tell()
      })
    }
    if (silence !== undefined) listen(0, silence)
    return unlessStopped(answer, (stop) => {
      const untie = call.onCancel(() => {
        stop(cancelledCall(backend, call.signal, 'unknown'))
        // If this process itself was late, the answer may be there and not yet read.
        afterThisTurn(() => {
          leaveIfStuck()
          cancel()
        })
      })
      return () => {
        untie()
        timer?.cancel()
      }
    })
  }

  close(): void {
    this.#isClosed = true
    this.#current?.destroy()
    for (const left of this.#left) left.destroy()
  }

  /** Each member once, but for those that were silent lately, if there are others. */
  async #connect(): Promise<C> {
    const { hosts, clock, open } = this.#options
    const all = hosts.map((_, index) => (this.#next + index) % hosts.length)
    const isAwake = (index: number) => clock.monotonicMs() >= (this.#silent.get(hosts[index] ?? '') ?? 0)
    const awake = all.filter(isAwake)
    let failure: unknown
    for (const index of awake.length > 0 ? awake : all) {
      const [host = '', startMs] = [hosts[index], clock.monotonicMs()]
      this.#next = index
      try {
        this.#current = await open(host)
        if (this.#isClosed) this.#current.destroy()
        return this.#current
      } catch (error) {
        failure = error
        const nowMs = clock.monotonicMs()
        if (nowMs - startMs >= STUCK_AFTER_MS) this.#silent.set(host, nowMs + PASSED_OVER_MS)
        if (this.#isClosed) break
      }
    }
    this.#next++
    throw failure
  }
}
