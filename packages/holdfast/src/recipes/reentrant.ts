/**
 * Re-entrancy, opt-in: a task that holds a name may ask for it again, and gets a lease over the same claim.
 *
 *   free ──withLease, granted by the engine──▶ count 1   [#open]     the body runs in a scope (AsyncLocalStorage), or in one for each name
 *   count n ──asked for in the scope─────────▶ n + 1     [enter]     same claim, same token (T39, tokens of re-entry); the engine is not asked
 *   count n ──release of one lease───────────▶ n − 1     [leave]
 *   count 1 ──release────────────────────────▶ over      [leave]     the engine's lease is released
 *
 * Failures in between:
 *   a task outlives the body of `withLease`: its lease keeps the claim until it is released. Once the count was zero, the
 *     scope is over for good, and what is left of the task asks the engine like any other.
 *   the engine's lease is lost: all leases over it are lost in the same moment, and re-entry fails with that loss. A new grant
 *     would have another token than the one that the outer body uses.
 *   another task: it has another scope or none, and asks the engine (G1).
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { InvalidArgumentError, LeaseLostError, quote } from '../base/errors.ts'
import { ttlMsOf } from '../base/granted-ttl.ts'
import { bodyRuns, conclude, type LeasesLocker, readBody, settle, withLeases } from '../base/lease-body.ts'
import { canonicalOrder, HeldLeases } from '../base/lease-set.ts'
import { checkCallOptions, checkKnownOptions, checkNumber, checkSignal } from '../base/options.ts'
import { overriding } from '../base/overriding.ts'
import type { AcquireOptions, Lease, LeaseSet, Locker } from '../base/types.ts'
import { checkNeeds } from './needs.ts'

type Body<T, L = Lease> = (lease: L) => Promise<T> | T

/** The claims of a task, the innermost first. */
interface Scope {
  readonly claim: Claim
  readonly outer: Scope | undefined
}

const wrappers = new WeakMap<object, Locker>()

/**
 * The same locker, on which the body of `withLease` or `withLeases` may ask again for a name that it holds: with these two, `acquire`,
 * `tryAcquire` or `acquireAll`. Only the first two open a scope. A second call with the same locker returns the same wrapper.
 */
export function reentrant<L extends Locker>(locker: L): L {
  checkNeeds('Re-entrancy', locker, [])
  const known = wrappers.get(locker)
  if (known !== undefined) return known as L
  const tasks = new Reentrancy(locker)
  const wrapper: Locker = overriding<Locker>(locker, {
    acquire: async (name, options = {}) =>
      tasks.reenter(name, options, true) ?? locker.acquire(name, options),
    tryAcquire: async (name, options = {}) =>
      tasks.reenter(name, options, false) ?? locker.tryAcquire(name, options),
    acquireAll: (names, options = {}) => tasks.acquireAll(names, options),
    withLeases: <T>(
      names: readonly string[],
      optionsOrBody: AcquireOptions | Body<T, LeaseSet>,
      maybeBody?: Body<T, LeaseSet>,
    ) => tasks.withLeases(names, optionsOrBody, maybeBody),
    withLease: <T>(name: string, optionsOrBody: AcquireOptions | Body<T>, maybeBody?: Body<T>) =>
      tasks.withLease(name, optionsOrBody, maybeBody),
  })
  for (const each of [locker, wrapper]) wrappers.set(each, wrapper)
  return wrapper as L
}

class Reentrancy {
  readonly #locker: Locker
  readonly #scopes = new AsyncLocalStorage<Scope>()

  constructor(locker: Locker) {
    this.#locker = locker
  }

  /** A lease over the claim that the task has; undefined if it has none. */
  reenter(name: string, options: AcquireOptions, waits: boolean): Lease | undefined {
    let scope = this.#scopes.getStore()
    while (scope !== undefined && !(scope.claim.name === name && scope.claim.isOpen)) scope = scope.outer
    if (scope === undefined) return undefined
    checkTerms(scope.claim, options, waits)
    const { held } = scope.claim
    if (held.state === 'lost') throw held.signal.reason
    return scope.claim.enter()
  }

  async withLease<T>(
    name: string,
    optionsOrBody: AcquireOptions | Body<T>,
    maybeBody: Body<T> | undefined,
  ): Promise<T> {
    const { options, body } = readBody(optionsOrBody, maybeBody)
    const lease = this.reenter(name, options, true)
    if (lease === undefined) return this.#open(name, options, body)
    return conclude<T>(lease, await settle(() => body(lease)))
  }

  /** The engine's lease is released at zero, which may be later than the end of the body. The caller does not wait for that. */
  #open<T>(name: string, options: AcquireOptions, body: Body<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    const outer = this.#scopes.getStore()
    this.#locker
      .withLease(name, options, async (held) => {
        const claim = new Claim(held, options.mode ?? 'exclusive')
        const lease = claim.enter()
        const ended = await this.#scopes.run({ claim, outer }, () => settle(() => body(lease)))
        conclude<T>(lease, ended).then(resolve, reject)
        await claim.over
      })
      // A rejection has no further effect if the body has ended before.
      .catch(reject)
    return promise
  }

  /** Each lease of the set is a claim of its own, also a re-entered one. At a count of zero it is released, as with one name. */
  async withLeases<T>(
    names: readonly string[],
    optionsOrBody: AcquireOptions | Body<T, LeaseSet>,
    maybeBody: Body<T, LeaseSet> | undefined,
  ): Promise<T> {
    const { options, body } = readBody(optionsOrBody, maybeBody)
    let claims: readonly Claim[] = []
    const host: LeasesLocker<LeaseSet> = {
      acquireAll: async () => {
        const { leases } = await this.acquireAll(names, options)
        claims = leases.map((held) => new Claim(held, options.mode ?? 'exclusive'))
        return new HeldLeases(claims.map((claim) => claim.enter()))
      },
      [bodyRuns]: (finished) => {
        const over = Promise.all([finished, ...claims.map((claim) => claim.over)]).then(() => {})
        ;(this.#locker as Partial<typeof host>)[bodyRuns]?.(over)
      },
    }
    return withLeases(host, names, options, (set) => {
      const within = (outer: Scope | undefined, claim: Claim): Scope => ({ claim, outer })
      return this.#scopes.run(claims.reduce(within, this.#scopes.getStore()) as Scope, () => body(set))
    })
  }

  async acquireAll(names: readonly string[], options: AcquireOptions): Promise<LeaseSet> {
    const ordered = canonicalOrder(names)
    const entered: Lease[] = []
    try {
      for (const name of ordered) {
        const lease = this.reenter(name, options, true)
        if (lease !== undefined) entered.push(lease)
      }
      const others = ordered.filter((name) => !entered.some((lease) => lease.name === name))
      if (others.length === ordered.length) return await this.#locker.acquireAll(names, options)
      const rest = others.length === 0 ? [] : (await this.#locker.acquireAll(others, options)).leases
      const all = new HeldLeases([...entered, ...rest].sort(by(ordered)))
      // All or nothing: the wait for the others may have been long.
      const lost = entered.find(({ state }) => state === 'lost')
      if (lost === undefined) return all
      await Promise.all(rest.map((lease) => lease.release()))
      throw lost.signal.reason
    } catch (error) {
      await Promise.all(entered.map((lease) => lease.release()))
      throw error
    }
  }
}

function by(names: readonly string[]): (a: Lease, b: Lease) => number {
  return (a, b) => names.indexOf(a.name) - names.indexOf(b.name)
}

/** One grant of the engine, and how many leases the task has over it. */
class Claim {
  readonly mode: 'exclusive' | 'shared'
  readonly held: Lease
  readonly over: Promise<void>
  readonly #end: () => void
  #count = 0

  constructor(held: Lease, mode: 'exclusive' | 'shared') {
    this.held = held
    this.mode = mode
    const { promise, resolve } = Promise.withResolvers<void>()
    this.over = promise
    this.#end = resolve
  }

  get name(): string {
    return this.held.name
  }

  get isOpen(): boolean {
    return this.#count > 0
  }

  enter(): Lease {
    const { held } = this
    this.#count++
    let release: Lease['release'] | undefined
    const isOver = () => release !== undefined
    const ifHeld = async (act: () => Promise<void>) => {
      if (isOver()) throw new LeaseLostError(held.name, 'released', { leaseId: held.id })
      await act()
    }
    const own: Partial<Lease> & { readonly toJSON: () => object } = {
      get state() {
        return isOver() ? 'released' : held.state
      },
      get remainingMs() {
        return isOver() ? 0 : held.remainingMs
      },
      ensure: (ms, options) => ifHeld(() => held.ensure(ms, options)),
      renew: (options) => ifHeld(() => held.renew(options)),
      setData: (data, options) => ifHeld(() => held.setData(data, options)),
      release: async (options) => {
        checkCallOptions(options)
        release ??= this.#leave()
        return release(options)
      },
      [Symbol.asyncDispose]: async () => void (await own.release?.()),
      toJSON: () => ({ ...Object(held).toJSON?.(), state: own.state, remainingMs: own.remainingMs }),
    }
    return overriding(held, own)
  }

  /** How the lease that leaves is released; the last one releases the engine's. */
  #leave(): Lease['release'] {
    const outcome = this.held.state === 'lost' ? 'not-held' : 'released'
    if (--this.#count > 0) return async () => outcome
    this.#end()
    return (options) => this.held.release(options)
  }
}

/** Options that the grant cannot give any more are refused, not ignored (G12). */
const ofTheGrant = ['maxHoldMs', 'holdAtLeastMs', 'lockDelayMs', 'onJeopardy'] as const
const known = [...ofTheGrant, 'mode', 'ttlMs', 'signal', 'note', 'owner', 'warnHoldMs']
const forWaiting = ['waitMs', 'maxWaiters']

function checkTerms({ held, name, mode }: Claim, options: AcquireOptions, waits: boolean): void {
  checkKnownOptions('options', options, waits ? [...known, ...forWaiting] : known)
  const advice = 'Ask for it where the task asks for the name first.'
  if ((options.mode ?? 'exclusive') !== mode)
    throw new InvalidArgumentError(
      'mode',
      `must be ${mode}: the task holds ${quote(name)} in this mode, and would wait for itself to get another.`,
    )
  for (const option of ofTheGrant)
    if (options[option] !== undefined)
      throw new InvalidArgumentError(option, `cannot be changed on re-entry to ${quote(name)}. ${advice}`)
  const ttlMs = ttlMsOf(held)
  if (options.ttlMs !== undefined && checkNumber('ttlMs', options.ttlMs, { min: 1 }) > ttlMs)
    throw new InvalidArgumentError(
      'ttlMs',
      `must be at most ${ttlMs}, with which the task holds ${quote(name)}. ${advice}`,
    )
  checkSignal(options.signal)?.throwIfAborted()
}
