import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { isHoldfastError } from '../base/errors.ts'
import { publicIdOf } from '../base/ids.ts'
import type { AcquireRequest } from '../spi.ts'
import { permits } from '../testing/conformance/requests.ts'
import * as rules from './rules.ts'
import type { FoundClaim } from './session.ts'

interface Row {
  readonly owner: rules.Owner
  readonly request: AcquireRequest
  token: bigint | null
  data: string | null
}

/** The smallest state that obeys `Step`: one list of claims, in the order in which they came. */
class Rows implements rules.Step {
  readonly backend = 'rows'
  readonly afterCommit: (() => void)[] = []
  readonly changes: string[] = []
  readonly marks = new Map<string, string | null>()
  readonly ends = new Map<rules.Owner, number>()
  readonly ttlMs = 1_000
  nowMs = 0
  claims: Row[] = []
  capacity = 0
  closedUntilMs: number | null = null
  data: string | null = null
  #tokens = 0n

  session(id: string): rules.Owner {
    const owner = { namespace: 'default', id }
    this.ends.set(owner, this.nowMs + this.ttlMs)
    return owner
  }

  dueMs() {
    return Math.min(...this.ends.values(), this.closedUntilMs ?? Infinity)
  }

  look(owner: rules.Owner, { attempt }: { readonly attempt: string }) {
    const own = this.#of(attempt)
    return {
      ...this.lookAt(),
      dueMs: this.dueMs(),
      isAlive: this.ends.has(owner),
      isMarked: this.marks.has(attempt),
      holds: own !== undefined && own.token !== null,
      waits: own !== undefined && own.token === null,
    }
  }

  lookAt() {
    const held = this.#holders.reduce((sum, { request }) => sum + request.weight, 0)
    const { closedUntilMs, data } = this
    const capacity = this.claims.length > 0 ? this.capacity : null
    return { held, capacity, isWaitedFor: this.#waiters.length > 0, closedUntilMs, data }
  }

  firstWaiter() {
    const [first] = this.#waiters
    return first && { weight: first.request.weight }
  }

  heaviestWaiter = () => Math.max(0, ...this.#waiters.map(({ request }) => request.weight))
  hasWaiters = (_: rules.NameKey, atLeast: number) => this.#waiters.length >= atLeast

  grantOf(_: rules.Owner, { attempt }: { readonly attempt: string }) {
    const own = this.#of(attempt)
    return own === undefined || own.token === null ? undefined : { token: own.token, data: own.data }
  }

  claimsOf(owner: rules.Owner): FoundClaim[] {
    return this.claims
      .filter((row) => row.owner === owner)
      .map(({ request: { name, attempt }, token }) => ({
        name,
        attempt,
        grantId: token === null ? null : String(token),
      }))
  }

  forcedBecause = (_: rules.Owner, attempt: string) => this.marks.get(attempt) ?? undefined

  insertHolder(owner: rules.Owner, request: AcquireRequest, data: string | null) {
    this.insertWaiter(owner, request)
    return this.#grant(this.claims.at(-1) as Row, data)
  }

  insertWaiter(owner: rules.Owner, request: AcquireRequest) {
    this.capacity = request.capacity
    this.claims.push({ owner, request, token: null, data: null })
  }

  promote(_: rules.NameKey, __: rules.FirstWaiter, data: string | null) {
    const [first] = this.#waiters
    assert(first !== undefined)
    this.#grant(first, data)
    this.changes.push(`promoted ${first.owner.id}`)
  }

  deleteHolder(owner: rules.Owner, claim: { readonly attempt: string; readonly grantId: string }) {
    const own = this.#of(claim.attempt)
    if (own?.owner !== owner || String(own.token) !== claim.grantId || !this.#hasTime(owner)) return undefined
    this.deleteClaim(owner, claim)
    return { capacity: this.capacity, isWaitedFor: this.#waiters.length > 0 }
  }

  deleteClaim(_: rules.Owner, { attempt }: { readonly attempt: string }) {
    const before = this.claims.length
    this.claims = this.claims.filter(({ request }) => request.attempt !== attempt)
    return this.claims.length < before
  }

  deleteForced(_: rules.NameKey, ids: readonly string[], reason: string) {
    const forced = this.#holders.filter(({ request }) => ids.includes(publicIdOf(request.attempt)))
    for (const { owner, request } of forced) {
      this.marks.set(request.attempt, reason)
      this.deleteClaim(owner, request)
    }
    return forced.length
  }

  markAbandoned(_: rules.Owner, attempt: string) {
    this.marks.set(attempt, null)
  }

  prolong(owner: rules.Owner) {
    if (this.ends.has(owner)) this.ends.set(owner, this.nowMs + this.ttlMs)
    return this.ends.has(owner)
  }

  expiredSessions = () => [...this.ends.keys()].filter((owner) => !this.#hasTime(owner))

  deleteSession(owner: rules.Owner, ending: rules.Ending) {
    this.changes.push(`${ending} ${owner.id}`)
    for (const { owner: of, token, request } of this.claims)
      if (ending === 'expired' && of === owner && token !== null && request.lockDelayMs > 0)
        this.close(this.name, 0, (this.ends.get(owner) ?? 0) + request.lockDelayMs)
    this.ends.delete(owner)
    this.claims = this.claims.filter((row) => row.owner !== owner)
    return [this.name]
  }

  close(_: rules.NameKey, __: number, untilMs: number) {
    this.closedUntilMs = Math.max(untilMs, this.closedUntilMs ?? 0)
  }

  openNames() {
    if (this.closedUntilMs !== null && this.closedUntilMs <= this.nowMs) this.closedUntilMs = null
    return [this.name]
  }

  putData(owner: rules.Owner, claim: { readonly attempt: string; readonly grantId: string }, data: string) {
    const own = this.#of(claim.attempt)
    if (own?.owner !== owner || String(own.token) !== claim.grantId || !this.#hasTime(owner)) return false
    this.data = data
    return true
  }

  dropData() {
    this.data = null
  }

  putCapacity(_: rules.NameKey, capacity: number) {
    this.capacity = capacity
  }

  readonly name = { namespace: 'default', name: 'n' }

  /** Holders with a star, then the queue: `a* b c`. */
  show(): string {
    return [
      ...this.#holders.map(({ owner }) => `${owner.id}*`),
      ...this.#waiters.map(({ owner }) => owner.id),
    ].join(' ')
  }

  get #holders(): Row[] {
    return this.claims.filter(({ token }) => token !== null)
  }

  get #waiters(): Row[] {
    return this.claims.filter(({ token }) => token === null)
  }

  #of(attempt: string): Row | undefined {
    return this.claims.find(({ request }) => request.attempt === attempt)
  }

  #hasTime(owner: rules.Owner): boolean {
    return (this.ends.get(owner) ?? 0) > this.nowMs
  }

  #grant(row: Row, data: string | null): rules.Granted {
    row.token = ++this.#tokens
    row.data = data
    return { token: row.token, data }
  }
}

const later = { notAfterMs: Infinity }

function setUp(capacity = 1) {
  const rows = new Rows()
  const [a, b, c] = [rows.session('a'), rows.session('b'), rows.session('c')]
  const asked = (weight = 1, more: Partial<AcquireRequest> = {}) => ({
    ...permits('n', weight, capacity),
    ...more,
  })
  const granted = (owner: rules.Owner, wanted: AcquireRequest) => {
    const found = rules.enqueue(rows, owner, wanted)
    assert(found.kind === 'granted')
    return { ...wanted, grantId: String(found.token) }
  }
  return { rows, a, b, c, asked, granted }
}

describe('one rule for all modes', () => {
  test('G1 a claim is granted while the holders leave room, and waits otherwise', () => {
    const { rows, a, b, c, asked } = setUp(3)
    assert.equal(rules.enqueue(rows, a, asked(2)).kind, 'granted')
    assert.equal(rules.tryAcquire(rows, b, asked(2)).kind, 'busy')
    assert.equal(rules.enqueue(rows, b, asked(2)).kind, 'waiting')
    assert.equal(rules.tryAcquire(rows, c, asked(1)).kind, 'busy', 'G8 it fits, and does not overtake')
    assert.equal(rows.show(), 'a* b')
  })

  test('G9 a release grants the first waiters that fit, and no further one', () => {
    const { rows, a, b, c, asked, granted } = setUp(3)
    const held = granted(a, asked(3))
    rules.enqueue(rows, b, asked(2))
    rules.enqueue(rows, c, asked(2))
    rules.enqueue(rows, a, asked(1))
    assert.equal(rules.release(rows, a, held, 0), 'released')
    assert.equal(rows.show(), 'b* c a')
  })

  test('T12 an attempt that is asked again gets the same grant, or keeps its position', () => {
    const { rows, a, b, c, asked } = setUp()
    const [held, queued] = [asked(), asked()]
    const first = rules.enqueue(rows, a, held)
    rules.enqueue(rows, b, queued)
    rules.enqueue(rows, c, asked())
    assert.deepEqual(rules.enqueue(rows, a, held), first)
    assert.deepEqual(rules.enqueue(rows, b, queued), { kind: 'waiting' })
    assert.equal(rows.show(), 'a* b c')
  })

  test('never more wait than the request allows, and another capacity is refused', () => {
    const { rows, a, b, c, asked } = setUp()
    rules.enqueue(rows, a, asked())
    assert.equal(rules.enqueue(rows, b, asked(1, { maxWaiters: 0 })).kind, 'queue-full')
    assert.equal(rules.enqueue(rows, b, asked(1, { maxWaiters: 1 })).kind, 'waiting')
    assert.equal(rules.enqueue(rows, c, asked(1, { maxWaiters: 1 })).kind, 'queue-full')
    assert.throws(
      () => rules.tryAcquire(rows, c, permits('n', 1, 5)),
      (error) => isHoldfastError(error, 'CAPACITY_MISMATCH'),
    )
    assert.equal(rows.show(), 'a* b')
  })
})

describe('time', () => {
  test('T20 all the dead go before anything is granted: a dead waiter gets nothing', () => {
    const { rows, a, b, c, asked } = setUp()
    for (const owner of [a, b, c]) rules.enqueue(rows, owner, asked())
    rows.nowMs = 500
    rules.keepAlive(rows, c, { held: [], waiting: [] })
    rows.nowMs = 1_000
    rules.expire(rows)
    assert.deepEqual(rows.changes, ['expired a', 'expired b', 'promoted c'])
  })

  test('T20 a release and an operator look first who is dead', () => {
    const { rows, a, b, c, asked, granted } = setUp()
    const held = granted(a, asked())
    for (const owner of [b, c]) rules.enqueue(rows, owner, asked())
    rows.nowMs = 500
    for (const owner of [a, c]) rules.keepAlive(rows, owner, { held: [], waiting: [] })
    rows.nowMs = 1_000
    rules.release(rows, a, held, 0)
    assert.equal(rows.show(), 'c*')
    rows.nowMs = 1_500
    assert.equal(rules.resize(rows, rows.name, { from: 1, to: 2 }, later), 'changed')
  })

  test('T23 a lock-delay closes the name from the end of the session, and says for how long', () => {
    const { rows, a, asked } = setUp()
    rules.enqueue(rows, a, asked(1, { lockDelayMs: 300 }))
    rows.nowMs = 1_100
    const late = rows.session('late')
    assert.deepEqual(rules.tryAcquire(rows, late, asked()), { kind: 'busy', retryAfterMs: 200 })
    assert.equal(rules.enqueue(rows, late, asked()).kind, 'waiting')
    rows.nowMs = 1_300
    rules.expire(rows)
    assert.equal(rows.show(), 'late*')
  })

  test('a hold-at-least keeps the name from the first waiter', () => {
    const { rows, a, b, asked, granted } = setUp()
    const held = granted(a, asked())
    rules.enqueue(rows, b, asked())
    rules.release(rows, a, held, 100)
    assert.equal(rows.show(), 'b')
    rows.nowMs = 100
    rules.expire(rows)
    assert.equal(rows.show(), 'b*')
  })

  test('T31 a session whose time is up is gone, for every call', () => {
    const { rows, a, asked, granted } = setUp()
    const held = granted(a, asked())
    rows.nowMs = 1_000
    assert.equal(rules.release(rows, a, held, 0), 'not-held')
    assert.equal(rules.setData(rows, a, held, 'late'), 'not-held')
    assert.equal(rules.tryAcquire(rows, a, asked()).kind, 'session-gone')
    assert.equal(rules.enqueue(rows, a, asked()).kind, 'session-gone')
    assert.equal(rules.keepAlive(rows, a, { held: [held], waiting: [] }), null)
    rules.abandon(rows, a, held)
    assert.equal(rows.marks.size, 0)
  })
})

describe('what a session is answered', () => {
  test('T73 an abandoned attempt can never land again, and its place goes to the next', () => {
    const { rows, a, b, asked } = setUp()
    const held = asked()
    rules.enqueue(rows, a, held)
    rules.enqueue(rows, b, asked())
    rules.abandon(rows, a, held)
    assert.equal(rows.show(), 'b*')
    assert.equal(rules.tryAcquire(rows, a, held).kind, 'busy')
    assert.throws(
      () => rules.enqueue(rows, a, held),
      (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied',
    )
  })

  test('G7 T84 a release touches the named grant only', () => {
    const { rows, a, b, asked, granted } = setUp()
    const held = granted(a, asked())
    assert.equal(rules.release(rows, a, { ...held, grantId: '99' }, 0), 'not-held')
    assert.equal(rules.release(rows, b, held, 0), 'not-held')
    assert.equal(rows.show(), 'a*')
  })

  test('T34 a keep-alive names each loss with its reason, grants that were missed, and what it was not told of', () => {
    const { rows, a, b, asked, granted } = setUp(2)
    const [forced, deleted, waiting] = [granted(a, asked()), granted(a, asked()), asked(2)]
    rules.enqueue(rows, a, waiting)
    rules.forceRelease(rows, rows.name, [publicIdOf(forced.attempt)], 'an operator said so', later)
    rows.deleteClaim(a, deleted)
    rules.promote(rows, rows.name)
    const kept = rules.keepAlive(rows, a, { held: [forced, deleted], waiting: [waiting] })
    assert.deepEqual(kept?.lost, [
      { attempt: forced.attempt, reason: 'force-released', detail: 'an operator said so' },
      { attempt: deleted.attempt, reason: 'taken-over' },
    ])
    assert.deepEqual(kept?.granted, [{ name: 'n', attempt: waiting.attempt, token: 3n, data: null }])
    rules.closeSession(rows, a)
    const unknown = granted(b, asked())
    assert.deepEqual(rules.keepAlive(rows, b, { held: [], waiting: [] })?.unlisted, [
      { name: 'n', attempt: unknown.attempt },
    ])
  })

  test('data goes to the next holder with its grant', () => {
    const { rows, a, b, asked, granted } = setUp()
    const held = granted(a, asked())
    rules.enqueue(rows, b, asked())
    assert.equal(rules.setData(rows, a, held, 'for the next'), 'stored')
    rules.release(rows, a, held, 0)
    assert.equal(rows.claims[0]?.data, 'for the next')
  })
})

describe('operators', () => {
  test('T74 a force release hits the ids that the operator saw, and no successor', () => {
    const { rows, a, b, asked } = setUp()
    const held = asked()
    rules.enqueue(rows, a, held)
    rules.enqueue(rows, b, asked())
    const ids = [publicIdOf(held.attempt)]
    assert.equal(rules.forceRelease(rows, rows.name, ids, 'why', later), 1)
    assert.equal(rules.forceRelease(rows, rows.name, ids, 'why', later), 0)
    assert.equal(rows.show(), 'b*')
  })

  test('T78 a call that arrives late, or after a change, does nothing', () => {
    const { rows, a, asked } = setUp(2)
    rules.enqueue(rows, a, asked())
    for (const late of [
      () => rules.resize(rows, rows.name, { from: 2, to: 3 }, { notAfterMs: 0 }),
      () => rules.forget(rows, rows.name, 'x', { notAfterMs: 0 }),
      () => rules.forceRelease(rows, rows.name, [], 'why', { notAfterMs: 0 }),
    ])
      assert.throws(late, (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
    assert.equal(rules.resize(rows, rows.name, { from: 5, to: 3 }, later), 'changed')
    assert.equal(rows.capacity, 2)
  })

  test('a resize grants waiters that fit now, and never goes below what is in use', () => {
    const { rows, a, b, asked } = setUp(2)
    rules.enqueue(rows, a, asked(2))
    rules.enqueue(rows, b, asked(2))
    assert.equal(rules.resize(rows, rows.name, { from: 2, to: 1 }, later), 'in-use')
    assert.equal(rules.resize(rows, rows.name, { from: 2, to: 4 }, later), 'resized')
    assert.equal(rows.show(), 'a* b*')
    rules.closeSession(rows, b)
    const heavy = asked(3, { capacity: 4 })
    assert.equal(rules.enqueue(rows, b, heavy).kind, 'session-gone')
    const d = rows.session('d')
    assert.equal(rules.enqueue(rows, d, heavy).kind, 'waiting')
    assert.equal(
      rules.resize(rows, rows.name, { from: 4, to: 2 }, later),
      'in-use',
      'a waiter would never fit',
    )
    rules.enqueue(rows, a, asked(2, { capacity: 4 }))
    assert.equal(rules.resize(rows, rows.name, { from: 4, to: 3 }, later), 'resized')
    assert.equal(rules.enqueue(rows, d, heavy).kind, 'waiting', 'asked again with the old capacity')
  })

  test('data is forgotten only while nobody uses the name, and only what the operator saw', () => {
    const { rows, a, asked, granted } = setUp()
    const held = granted(a, asked())
    rules.setData(rows, a, held, 'left')
    assert.equal(rules.forget(rows, rows.name, 'left', later), 'in-use')
    rules.release(rows, a, held, 0)
    assert.equal(rules.forget(rows, rows.name, 'other', later), 'changed')
    assert.equal(rules.forget(rows, rows.name, 'left', later), 'forgotten')
    assert.equal(rows.data, null)
  })
})
