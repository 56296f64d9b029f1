/**
 * A session is a connection, and its locks are in it. `claims.ts` has what it holds; requests leave together over the lane.
 *
 *   open ──its connection ends | close──▶ ended        [#finish]
 */
import { instantOf } from '../../base/clock.ts'
import {
  BackendUnavailableError,
  type HoldfastError,
  type LossReason,
  quote,
  UnsupportedError,
} from '../../base/errors.ts'
import { remedyOf } from '../../clients/postgres/index.ts'
import { neverCancelled } from '../../kit/backend-kit.ts'
import { Lane } from '../../kit/lane.ts'
import { SessionBase, type SessionFacts } from '../../kit/session.ts'
import type {
  AcquireRequest,
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  Grant,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
} from '../../spi.ts'
import { Claims, collision, type SessionClaim } from './claims.ts'
import { type Connection, NAME } from './connection.ts'
import type { LockConnection } from './lock-connection.ts'
import { shownHolders } from './looking.ts'

/** Each request costs a few microseconds of the server's time, and one behind it waits for all of them. */
const MAX_BATCH = 256
const LOCK_TABLE_IS_FULL = '53200'

/** An acquire or a release, as the function in the database reads it. */
interface Request extends Pick<SessionClaim, 'mode' | 'key' | 'slot' | 'name' | 'id'> {
  readonly isRelease: boolean
  readonly note?: string | undefined
  readonly owner?: string | undefined
}

const ignore = () => {}

export class AdvisorySession extends SessionBase<'fenced'> implements BackendSession<'fenced'> {
  readonly #connection: Connection
  readonly #locks: LockConnection
  readonly #lane: Lane<Request, string>
  readonly #claims = new Claims()
  readonly #abandoned = new Set<string>()
  /** Why operators ended claims, by attempt. */
  readonly #forced = new Map<string, string>()
  readonly #onEnd: () => void
  #hasEnded = false

  constructor(connection: Connection, locks: LockConnection, facts: SessionFacts, onEnd: () => void) {
    super(facts)
    this.#connection = connection
    this.#locks = locks
    this.#onEnd = onEnd
    this.#lane = new Lane({
      backend: NAME,
      clock: connection.clock,
      maxBatch: MAX_BATCH,
      send: (requests) => this.#send(requests),
    })
    connection.listener.add(locks.key, () => void this.#keep().catch(ignore))
    locks.onEnd(() => this.#finish())
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { lifetime, clock, listener } = this.#connection
    lifetime.begin(call)
    const since = instantOf(clock)
    if (!this.#hasEnded)
      await this.#connection.untilCut(this.#keep(), call).catch((error: unknown) => {
        if (!this.#hasEnded) throw error
      })
    if (this.#hasEnded) return { kind: 'gone' }
    void listener.ready()
    this.prolonged(since)
    const has = ({ attempt, grantId }: GrantedClaim) =>
      String(this.#claims.get(attempt)?.token ?? '') === grantId
    const gone = [
      ...listed.held.filter((claim) => !has(claim)),
      ...listed.waiting.filter(({ attempt }) => this.#claims.get(attempt) === undefined),
    ]
    const lost: LostClaim[] = []
    for (const claim of gone) lost.push(await this.#lost(claim, call))
    const kept = new Set(listed.held.filter(has).map(({ attempt }) => attempt))
    const unlisted = this.#claims
      .all()
      .filter(({ attempt, state }) => state === 'held' && !kept.has(attempt))
      .map(({ name, attempt }) => ({ name, attempt }))
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted: [], unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const { lifetime, keys } = this.#connection
    const { name, attempt } = request
    lifetime.begin(call)
    const made = keys.of(name)
    const key = typeof made === 'string' ? made : await this.#connection.untilCut(made, call)
    for (;;) {
      if (this.#hasEnded) return { kind: 'session-gone' }
      if (this.#abandoned.has(attempt)) return { kind: 'busy' }
      const known = this.#claims.get(attempt)
      if (known === undefined) break
      if (known.state === 'held') return { kind: 'granted', grant: this.#grant(known) }
      await this.#connection.untilCut(known.settled.then(ignore, ignore), call)
    }
    if (this.#claims.isBusy(request, key)) return { kind: 'busy' }
    const claim = this.#claims.add(request, key)
    const asked = this.#ask(claim, request)
    claim.settled = asked
    return this.#connection.untilCut(asked, call)
  }

  async abandon({ attempt }: Claim, call: Call): Promise<void> {
    this.#connection.lifetime.begin(call)
    this.#abandoned.add(attempt)
    for (;;) {
      const claim = this.#claims.get(attempt)
      if (claim === undefined) return
      const settled = claim.state === 'held' ? this.#free(claim) : claim.settled
      await this.#connection.untilCut(settled.then(ignore, ignore), call)
    }
  }

  async release(
    { name, attempt, grantId }: GrantedClaim,
    _options: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    this.#connection.lifetime.begin(call)
    const claim = this.#claims.get(attempt)
    if (claim?.state !== 'held' || claim.name !== name || String(claim.token) !== grantId) return 'not-held'
    await this.#connection.untilCut(this.#free(claim), call)
    return 'released'
  }

  async close(call: Call): Promise<void> {
    this.#connection.lifetime.begin(call)
    await this.#connection.untilCut(this.end(), call).catch((error: unknown) => {
      this.#locks.drop()
      throw error
    })
  }

  /** Gives up everything, and the connection. */
  async end(): Promise<void> {
    if (this.#hasEnded) return
    this.#finish()
    await this.#locks.close()
  }

  /** Goes on without its caller: the claim must be known, whatever the answer is. */
  async #ask(claim: SessionClaim, { note, owner }: AcquireRequest): Promise<AcquireResult<'fenced'>> {
    const { mode, key, slot, name, id } = claim
    try {
      const request = { isRelease: false, mode, key, slot, name, id, note, owner }
      const [kind, ...words] = (await this.#lane.ask(request, neverCancelled)).split(' ')
      if (this.#hasEnded) return { kind: 'session-gone' }
      if (kind === 'granted') {
        claim.state = 'held'
        claim.token = BigInt(words[0] ?? 0)
        return { kind: 'granted', grant: this.#grant(claim) }
      }
      this.#claims.remove(claim)
      if (kind === 'busy') return { kind: 'busy' }
      const detail = words.join(' ')
      throw kind === 'collision' ? collision(name, detail, key) : failed(name, detail)
    } catch (error) {
      this.#claims.remove(claim)
      if (this.#hasEnded) return { kind: 'session-gone' }
      throw error
    }
  }

  /** Goes on without its caller, too. If it fails, the connection has ended, and the lock with it. */
  #free(claim: SessionClaim): Promise<void> {
    const { mode, key, slot, name, id } = claim
    claim.state = 'leaving'
    const freed = this.#lane.ask({ isRelease: true, mode, key, slot, name, id }, neverCancelled).then(ignore)
    claim.settled = freed.finally(() => this.#claims.remove(claim))
    return claim.settled as Promise<void>
  }

  async #send(requests: readonly Request[]): Promise<readonly string[]> {
    const { sql, namespace, loggedUpTo, keys } = this.#connection
    const releases = requests.filter(({ isRelease }) => isRelease)
    const acquires = requests.filter(({ isRelease }) => !isRelease)
    const rows = await this.#locks.run(sql.apply, [
      this.#locks.key,
      namespace,
      String(loggedUpTo),
      keys.mayCollide,
      releases.length === 0 ? null : JSON.stringify(releases),
      acquires.length === 0 ? null : JSON.stringify(acquires),
    ])
    let answered = 0
    return requests.map(({ isRelease }) => {
      if (isRelease) return 'released'
      const answer = String(rows[answered++]?.[0])
      if (answer.startsWith('granted')) this.#noteLogged(answer)
      return answer
    })
  }

  #noteLogged(answer: string): void {
    const logged = BigInt(answer.slice(answer.lastIndexOf(' ') + 1))
    if (logged > this.#connection.loggedUpTo) this.#connection.loggedUpTo = logged
  }

  /** From its sending on, the server waits for a whole TTL again. It also finds what an operator wants back. */
  async #keep(): Promise<void> {
    const [, ...marked] = await this.#locks.run(this.#connection.sql.keep, [this.#locks.key])
    for (const [id, token, reason] of marked) {
      const claim = this.#claims.all().find((each) => each.id === id && String(each.token) === token)
      if (claim?.state !== 'held') continue
      this.#forced.set(claim.attempt, String(reason))
      await this.#free(claim)
    }
  }

  async #lost({ name, attempt }: Claim, call: Call): Promise<LostClaim> {
    const detail = this.#forced.get(attempt)
    // An attempt that was granted once more, under another token: the listed grant was deleted before (T84).
    if (this.#claims.get(attempt) !== undefined) return { attempt, reason: 'deleted' }
    if (detail !== undefined) return { attempt, reason: 'force-released', detail }
    const holders = await shownHolders(this.#connection, name, call)
    const reason: LossReason = holders.length > 0 ? 'taken-over' : 'deleted'
    return { attempt, reason }
  }

  #grant(claim: SessionClaim): Grant<'fenced'> {
    return this.grantOf(claim, { token: claim.token })
  }

  /** The connection has ended or is about to, and with it everything that stood on it. */
  #finish(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#connection.listener.remove(this.#locks.key)
    this.#claims.clear()
    this.#lane.close()
    this.#onEnd()
  }
}

/** `problem` starts with the server's own code. */
function failed(name: string, problem: string): HoldfastError {
  const what = `acquire of ${quote(name)}: SQLSTATE ${problem}`
  const remedy = remedyOf(problem.split(' ', 1)[0] ?? '')
  if (remedy !== null) return new UnsupportedError(`${NAME}: ${what}. ${remedy}`)
  const advice = problem.startsWith(LOCK_TABLE_IS_FULL)
    ? "; the server's lock table is full: raise max_locks_per_transaction"
    : ''
  return new BackendUnavailableError(NAME, `${what}${advice}`, 'not-applied')
}
