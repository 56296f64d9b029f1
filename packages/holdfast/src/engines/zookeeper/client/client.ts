/**
 * A client for an ensemble of ZooKeeper: its members, credentials and ACL, and the sessions that are opened with them.
 *
 * One session is its own (`shared`): it has no claims, lives by pings, and serves reads and persistent watches.
 */

import { callWith } from '../../../base/aborting.ts'
import type { Clock } from '../../../base/clock.ts'
import { InvalidArgumentError, UnsupportedError } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { ignore } from '../../../base/ignore.ts'
import { SharedWork } from '../../../base/shared-work.ts'
import { withLimit } from '../../../base/within.ts'
import type { Call } from '../../../spi.ts'
import { unavailable } from './failures.ts'
import { Session, type SessionTerms } from './session.ts'
import type { ZooKeeperTls } from './socket.ts'

export interface ZooKeeperClientOptions {
  /** `host:port`. */
  readonly hosts: readonly string[]
  /** `/a/b`: everything of Holdfast is below it. */
  readonly chroot?: string
  readonly username?: string
  readonly password?: string
  /** `creator` (default): the nodes belong to these credentials. `open`: everybody may read and change them. */
  readonly acl?: 'creator' | 'open'
  readonly tls?: ZooKeeperTls
}

const SHARED_TIMEOUT_MS = 10_000
const OPEN_LIMIT_MS = 5_000
const CLOSE_LIMIT_MS = 1_000
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1

export class ZooKeeperClient {
  readonly backend: string
  /** '' or `/a/b`. */
  readonly chroot: string
  readonly options: ZooKeeperClientOptions
  readonly #terms: SessionTerms
  readonly #sessions = new Set<Session>()
  /** Callers share its opening, and none of them alone cancels it (T102, shared work). */
  readonly #shared: SharedWork<Session>
  #isClosed = false

  constructor(backend: string, options: ZooKeeperClientOptions, clock: Clock, random: Random) {
    checkOptions(options)
    this.options = options
    const { hosts, chroot = '', username, password = '', acl = 'creator', tls } = options
    this.backend = backend
    this.chroot = chroot.replace(/\/$/, '')
    const user = username === undefined ? undefined : Buffer.from(`${username}:${password}`)
    const preferred = { member: Math.floor(random.fraction() * hosts.length) }
    this.#terms = { backend, hosts, acl, tls, user, clock, random, preferred, counts: { sent: 0 } }
    const limit = { ms: OPEN_LIMIT_MS, clock }
    this.#shared = new SharedWork(backend, (signal) => this.#openShared(callWith(signal)), limit)
  }

  /** The same for one member. */
  at(host: string): ZooKeeperClient {
    const { clock, random } = this.#terms
    return new ZooKeeperClient(this.backend, { ...this.options, hosts: [host] }, clock, random)
  }

  /** Requests of all sessions so far, for tests and measurements. */
  get sent(): number {
    return this.#terms.counts.sent
  }

  async open(timeoutMs: number, call: Call): Promise<Session> {
    const session = this.#session(0n, timeoutMs)
    try {
      if (await session.open(call)) return session
    } catch (error) {
      void this.discard(session, false)
      throw error
    }
    this.#sessions.delete(session)
    throw unavailable(this.backend, 'the session ended when it began', 'not-applied')
  }

  /**
   * Goes on with a session that was opened before, also by another process. Two processes would take it from each other, so one should be
   * through with it. Nothing is sent: the first request tells whether it lives.
   */
  attach(id: bigint, timeoutMs: number): Session {
    const known = [...this.#sessions].find((session) => session.id === id && !session.isGone)
    return known ?? this.#session(id, timeoutMs)
  }

  /** For a session that is not used any more. If it is not ended here, or that fails, it ends by itself when its time is up. */
  async discard(session: Session, isEnded = true): Promise<void> {
    this.#sessions.delete(session)
    if (isEnded)
      await withLimit(this.#terms.clock, CLOSE_LIMIT_MS, (limit) => session.end(limit)).catch(ignore)
    session.drop()
  }

  /** The bounds of a session's time, at the member that answers. */
  async negotiated(call: Call): Promise<{ readonly minMs: number; readonly maxMs: number }> {
    const asked = [1, LONGEST_TIMEOUT_MS].map(async (timeoutMs) => {
      const session = await this.open(timeoutMs, call)
      await this.discard(session)
      return session.timeoutMs
    })
    const [minMs = 0, maxMs = 0] = await Promise.all(asked)
    return { minMs, maxMs }
  }

  /** Ask for it before each use: one that has gone is replaced. */
  async shared(call: Call): Promise<Session> {
    const joined = this.#shared.join(call)
    const opened = this.#shared.started
    const session = await joined
    if (!session.isGone) return session
    // Another caller may have begun the next one already.
    if (this.#shared.started === opened) this.#shared.drop(new Error('the session has gone'))
    return this.#shared.join(call)
  }

  /** Creates what is missing of it, also of the chroot, as persistent nodes. */
  async makePath(path: string, call: Call): Promise<void> {
    const session = await this.shared(call)
    const saying = (what: string) => (error: unknown) => {
      if (!(error instanceof UnsupportedError)) throw error
      throw new UnsupportedError(`${this.backend}: ${path} ${what}. ${error.message}`, { cause: error })
    }
    // Since 3.9, `exists` needs the right to read the node.
    const found = await session.ask({ op: 'exists', path }, call).catch(saying('may not be read'))
    if (found.ok) return
    const parent = path.slice(0, path.lastIndexOf('/'))
    if (parent !== '') await this.makePath(parent, call)
    await session.ask({ op: 'create', path }, call).catch(saying('does not exist, and cannot be created'))
  }

  /** The shared session ends. The others live on until their time is up. */
  async close(): Promise<void> {
    this.#isClosed = true
    const shared = await this.#shared.drop(new Error('the client is closed'))?.catch(ignore)
    if (shared) await this.discard(shared)
    for (const session of this.#sessions) session.drop()
  }

  async #openShared(call: Call): Promise<Session> {
    const session = await this.open(SHARED_TIMEOUT_MS, call)
    session.startPings()
    return session
  }

  #session(id: bigint, timeoutMs: number): Session {
    if (this.#isClosed) throw unavailable(this.backend, 'the client is closed', 'not-applied')
    const session = new Session(this.#terms, id, timeoutMs)
    for (const each of this.#sessions) if (each.isGone) this.#sessions.delete(each)
    this.#sessions.add(session)
    return session
  }
}

function checkOptions({ hosts, chroot = '', username, acl, tls }: ZooKeeperClientOptions): void {
  const isHost = (host: unknown) => typeof host === 'string' && /^[^/@]+:\d{1,5}$/.test(host)
  if (!Array.isArray(hosts) || hosts.length === 0 || !hosts.every(isHost))
    throw new InvalidArgumentError('hosts', "must be a list such as ['127.0.0.1:2181'].")
  if (chroot !== '' && !/^(\/[^/\0]+)+\/?$/.test(chroot))
    throw new InvalidArgumentError('chroot', 'must be a path such as /locks, or left out.')
  if (acl !== undefined && acl !== 'creator' && acl !== 'open')
    throw new InvalidArgumentError('acl', "must be 'creator' or 'open'.")
  if (acl !== 'open' && username === undefined && tls?.cert === undefined)
    throw new InvalidArgumentError(
      'acl',
      "is 'creator' if it is left out, which needs a user name and a password, or a certificate. 'open' lets everybody read and change the nodes.",
    )
}
