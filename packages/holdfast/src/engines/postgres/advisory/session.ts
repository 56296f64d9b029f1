/**
 * A session is a connection, and its locks are in it. `claims.ts` has what it holds; requests leave together over the lane.
 *
 *   open ──its connection ends | close──▶ ended        [#finish]
 *
 * What may go wrong between the steps:
 *
 *   acquire    add the claim · send · lock and record, one statement · answer
 *              crash, or a lost answer: the connection ends, and the lock with it. An ERROR from the server: the record rolls back and the
 *              lock does not, so the lock is freed (`untake`). The caller gives up: the request goes on, and its claim is known.
 *   release    mark as leaving · send · unlock · answer · remove the claim
 *              crash, or a lost answer: as above, so the name is free in any case.
 *   abandon    mark the attempt · await what is in flight · release
 *              a late request for the attempt meets the mark. The mark lives in this process, as the session does.
 *   keepAlive  take the time · send · read what operators marked · release that
 *              the server's time-out counts from the arrival of the statement, belief from before its send. If it fails, the session is gone.
 */

import { instantOf } from '../../../base/clock.ts'
import { quote } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { Lane } from '../../../kit/lane.ts'
import { SessionBase, type SessionFacts } from '../../../kit/session.ts'
import type {
  AcquireRequest,
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
  ReleaseResult,
  ReleaseTerms,
} from '../../../spi.ts'
import { arrayLiteral, asUnavailable, sqlStateOf } from '../client/index.ts'
import { Claims, collision, type SessionClaim } from './claims.ts'
import { type Connection, NAME } from './connection.ts'
import { FreeHints } from './free-hints.ts'
import type { LockConnection } from './lock-connection.ts'
import { seenHolders } from './states.ts'

/** Each request costs a few microseconds of the server's time, and one behind it waits for all of them. */
const MAX_BATCH = 256

/** An acquire or a release. */
interface Request {
  readonly claim: SessionClaim
  readonly isRelease: boolean
  readonly note?: string | undefined
  readonly owner?: string | undefined
}

export class AdvisorySession extends SessionBase<'fenced'> implements BackendSession<'fenced'> {
  readonly #connection: Connection
  readonly #locks: LockConnection
  readonly #lane: Lane<Request, string>
  readonly #claims = new Claims()
  readonly #hints: FreeHints
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
    const { sql } = connection
    this.#hints = new FreeHints({
      clock: connection.clock,
      share: async (key) => {
        const rows = await locks.tryToRun(sql.awaitFree, [locks.key, key])
        if (rows instanceof Error) throw rows
        return rows[0]?.[0] === 'true'
      },
      unshare: (keys) => locks.run(sql.stopAwaiting, [locks.key, arrayLiteral(keys)]),
    })
    connection.listener.sessions.set(locks.key, {
      look: () => void this.#keep().catch(ignore),
      freed: (key) => this.#hints.tell(key),
    })
    locks.onEnd(() => this.#finish())
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { lifetime, clock, listener } = this.#connection
    lifetime.begin(call)
    const since = instantOf(clock)
    if (!this.#hasEnded)
      await this.#connection.lifetime.untilCut(this.#keep(), call).catch((error: unknown) => {
        if (!this.#hasEnded) throw error
      })
    if (this.#hasEnded) return { kind: 'gone' }
    void listener.ready()
    this.#hints.tidy().catch(ignore)
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
    const key = typeof made === 'string' ? made : await this.#connection.lifetime.untilCut(made, call)
    for (;;) {
      if (this.#hasEnded) return { kind: 'session-gone' }
      if (this.#abandoned.has(attempt)) return { kind: 'busy' }
      const known = this.#claims.get(attempt)
      if (known === undefined) break
      if (known.state === 'held') return { kind: 'granted', grant: this.grantOf(known, known) }
      await this.#connection.lifetime.untilCut(known.settled.then(ignore, ignore), call)
    }
    if (this.#claims.isBusy(request, key)) return { kind: 'busy' }
    const claim = this.#claims.add(request, key)
    const asked = this.#ask(claim, request)
    claim.settled = asked
    return this.#connection.lifetime.untilCut(asked, call)
  }

  onceFree(name: string, tell: () => void): () => void {
    const key = this.#connection.keys.of(name)
    // A key that is not known now was never asked for.
    return this.#hasEnded || typeof key !== 'string' ? ignore : this.#hints.once(key, tell)
  }

  async abandon({ attempt }: Claim, call: Call): Promise<void> {
    this.#connection.lifetime.begin(call)
    this.#abandoned.add(attempt)
    for (;;) {
      const claim = this.#claims.get(attempt)
      if (claim === undefined) return
      const settled = claim.state === 'held' ? this.#free(claim) : claim.settled
      await this.#connection.lifetime.untilCut(settled.then(ignore, ignore), call)
    }
  }

  async release(
    { name, attempt, grantId }: GrantedClaim,
    _options: ReleaseTerms,
    call: Call,
  ): Promise<ReleaseResult> {
    this.#connection.lifetime.begin(call)
    const claim = this.#claims.get(attempt)
    if (claim?.state !== 'held' || claim.name !== name || String(claim.token) !== grantId) return 'not-held'
    await this.#connection.lifetime.untilCut(this.#free(claim), call)
    return 'released'
  }

  async close(call: Call): Promise<void> {
    this.#connection.lifetime.begin(call)
    await this.#connection.lifetime.untilCut(this.end(), call).catch((error: unknown) => {
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
    const { key, name } = claim
    try {
      const request = { claim, isRelease: false, note, owner }
      const [kind, ...words] = (await this.#lane.ask(request, neverCancelled)).split(' ')
      if (this.#hasEnded) return { kind: 'session-gone' }
      if (kind === 'granted') {
        this.#claims.granted(claim, BigInt(words[0] ?? 0))
        const logged = BigInt(words[1] ?? 0)
        if (logged > this.#connection.loggedUpTo) this.#connection.loggedUpTo = logged
        return { kind: 'granted', grant: this.grantOf(claim, claim) }
      }
      this.#claims.refused(claim, kind === 'failed')
      if (kind === 'busy') return { kind: 'busy' }
      if (kind === 'collision') throw collision(name, words.join(' '), key)
      const [code, ...message] = words
      const error = Object.assign(new Error(message.join(' ')), { code, severity: 'ERROR' })
      throw asUnavailable(NAME, `acquire of ${quote(name)}`, error)
    } catch (error) {
      this.#claims.remove(claim)
      if (this.#hasEnded) return { kind: 'session-gone' }
      throw error
    }
  }

  /** Goes on without its caller, too. If it fails, the connection has ended, and the lock with it. */
  #free(claim: SessionClaim): Promise<void> {
    claim.state = 'leaving'
    const freed = this.#lane.ask({ claim, isRelease: true }, neverCancelled)
    claim.settled = freed
      .finally(() => this.#claims.remove(claim))
      .then((answer) => this.#hints.freed(claim.key, answer === 'others-wait'))
    return claim.settled as Promise<void>
  }

  /** The releases among them come first, here and at the server: an acquire may be for the same key. */
  async #send(requests: readonly Request[]): Promise<readonly string[]> {
    const [first] = requests
    if (requests.length === 1 && first?.claim.mode === 'exclusive') {
      const answer = first.isRelease ? await this.#freeOne(first.claim) : await this.#takeOne(first)
      if (answer !== undefined) return [answer]
    }
    const { sql, namespace, loggedUpTo, keys } = this.#connection
    const releases = requests.filter(({ isRelease }) => isRelease)
    const acquires = requests.filter(({ isRelease }) => !isRelease)
    const rows = await this.#locks.run(sql.apply, [
      this.#locks.key,
      namespace,
      String(loggedUpTo),
      keys.mayCollide,
      releases.length === 0 ? null : JSON.stringify(releases.map(itemOf)),
      acquires.length === 0 ? null : JSON.stringify(acquires.map(itemOf)),
    ])
    let [released, acquired] = [0, releases.length]
    return requests.map(({ isRelease }) => String(rows[isRelease ? released++ : acquired++]?.[0]))
  }

  /** Undefined: only `apply` can do it, or tell why it is busy. */
  async #takeOne({ claim, note, owner }: Request): Promise<string | undefined> {
    const { sql, loggedUpTo, keys } = this.#connection
    const { key, slot, name, id } = claim
    if (!slot.isWritten) return undefined
    const own = [this.#locks.key, key, slot.no]
    const parameters = [...own, String(loggedUpTo), name, id, note ?? null, owner ?? null]
    const rows = await this.#locks.tryToRun(sql.take, parameters)
    if (!(rows instanceof Error)) {
      const [got, token, known] = rows[0] ?? []
      if (token != null) return `granted ${token} ${known}`
      // Without a record, the lock means nothing.
      if (got === 'true') await this.#locks.run(sql.untake, own)
      return got === 'true' || keys.mayCollide ? undefined : 'busy'
    }
    await this.#locks.run(sql.untake, own)
    return `failed ${sqlStateOf(rows)} ${rows.message}. ${(rows as { hint?: string }).hint ?? ''}`
  }

  async #freeOne({ key, slot }: SessionClaim): Promise<string> {
    const { sql } = this.#connection
    const rows = await this.#locks.tryToRun(sql.free, [this.#locks.key, key])
    if (!(rows instanceof Error)) return String(rows[0]?.[0])
    await this.#locks.run(sql.untake, [this.#locks.key, key, slot.no])
    return 'released'
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
    // An attempt that was granted once more, under another token: the listed grant was deleted before (T84, late duplicates).
    if (this.#claims.get(attempt) !== undefined) return { attempt, reason: 'deleted' }
    if (detail !== undefined) return { attempt, reason: 'force-released', detail }
    const holders = await seenHolders(this.#connection, name, call)
    return { attempt, reason: holders.length > 0 ? 'taken-over' : 'deleted' }
  }

  /** The connection has ended or is about to, and with it everything that stood on it. */
  #finish(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#connection.listener.sessions.delete(this.#locks.key)
    this.#claims.clear()
    this.#lane.close()
    this.#onEnd()
  }
}

/** As the function in the database reads it. */
function itemOf({ claim: { mode, key, slot, name, id }, isRelease, note, owner }: Request): object {
  return isRelease ? { mode, key, slot: slot.no } : { mode, key, slot: slot.no, name, id, note, owner }
}
