/** One member: it joins, looks, takes and gives away, and leaves. The protocol stands in `../partitions.ts`. */
import { onAborted } from '../../base/aborting.ts'
import { pause } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { ClosedError, InvalidArgumentError, isHoldfastError, quote, textOf } from '../../base/errors.ts'
import { warnAgain } from '../../base/events.ts'
import { checkName } from '../../base/names.ts'
import { inNeutralContext } from '../../base/neutral-context.ts'
import { checkCallback, checkFunction, checkInteger, checkSignal } from '../../base/options.ts'
import type { Fencing, Lease, Locker, NameState } from '../../base/types.ts'
import type { Partitions, PartitionsOptions } from '../partitions.ts'
import { Assignments } from './assignments.ts'
import { type Listed, type Names, namesOf, noteText, partitionLimits, readList } from './picture.ts'
import { planFor } from './quotas.ts'
import { WakeablePause } from './wakeable-pause.ts'

/** One look serves all events of so long. */
const BURST_MS = 50
const LOOKS_PER_TTL = 3
/** The most looks in one TTL, even if an engine shows a dead member for long. 30: one a second with a TTL of 30 s. */
const MOST_LOOKS_PER_TTL = 30
/** A list reads every partition. While all is quiet, so many looks read only the members, in case an event was missed. */
const QUIET_LOOKS = 9

export class Membership<F extends Fencing> implements Partitions<F> {
  readonly #locker: Locker<F>
  readonly #options: PartitionsOptions<F>
  readonly #names: Names
  readonly #note: string
  readonly #pins: ReadonlyMap<number, string>
  readonly #closing = new AbortController()
  readonly #signal = this.#closing.signal
  readonly #assignments: Assignments<F>
  readonly #pause: WakeablePause
  #unfollow = () => {}
  #member: Lease<F> | undefined
  #ttlMs: number
  /** True while it has fewer partitions than its quota: every event may bring one. */
  #isLacking = false
  /** The members of a list after which there was nothing to do; undefined once anything has happened since. */
  #quiet: { readonly members: string; looks: number } | undefined
  #running: Promise<unknown> = Promise.resolve()
  #closed: Promise<void> | undefined

  constructor(locker: Locker<F>, options: PartitionsOptions<F>) {
    const { name, count, weight = 1, pin = {}, ttlMs = defaults.ttlMs } = options
    checkInteger('count', count, { min: 1, max: partitionLimits.count })
    checkInteger('weight', weight, { min: 1, max: partitionLimits.weight })
    this.#names = namesOf(checkName(name))
    checkName(this.#names.partition(count))
    checkFunction('onAssigned', options.onAssigned)
    checkFunction('onRevoked', options.onRevoked)
    checkCallback('onError', options.onError)
    checkSignal(options.signal)
    this.#locker = locker
    this.#options = options
    this.#note = noteText({ count, weight })
    this.#pins = checkPins(pin, count)
    this.#ttlMs = ttlMs
    this.#pause = new WakeablePause(locker.clock)
    const current = () => this.#ttlMs
    this.#assignments = new Assignments(options, {
      clock: locker.clock,
      get ttlMs() {
        return current()
      },
      failed: (error, partition) => this.#tell(error, partition),
      warn: (what) => this.#warn(what),
      ended: () => {
        this.#quiet = undefined
        if (this.#isLacking) this.#pause.wake()
      },
    })
  }

  get assigned(): ReadonlyMap<number, Lease<F>> {
    return this.#assignments.working
  }

  async open(): Promise<void> {
    const { signal } = this.#options
    signal?.throwIfAborted()
    this.#unfollow = onAborted(signal, () => void this.close())
    try {
      await this.#join()
    } catch (error) {
      await this.close()
      signal?.throwIfAborted()
      throw error
    }
    // Looks and watch outlive the call that has opened the membership.
    this.#running = inNeutralContext(() => Promise.all([this.#look(), this.#watch()]))
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    this.#unfollow()
    this.#closing.abort(new ClosedError('The member'))
    this.#pause.end()
    const member = this.#member
    this.#member = undefined
    await Promise.all([member?.release(), this.#assignments.stopAll('closed'), this.#running])
  }

  // --- joining ---------------------------------------------------------------------------------------------

  async #join(): Promise<Lease<F>> {
    const lease = await this.#locker.acquire(this.#names.member, { ...this.#holdOptions, mode: 'shared' })
    try {
      this.#mustAgree(await this.#list(lease.id))
      this.#signal.throwIfAborted()
    } catch (error) {
      await lease.release()
      throw error
    }
    this.#member = lease
    onAborted(lease.signal, () => this.#fellOut(lease))
    return lease
  }

  #mustAgree({ disagreeing }: Listed): void {
    if (disagreeing === undefined) return
    const { holder, count } = disagreeing
    throw new InvalidArgumentError(
      'count',
      `is ${this.#options.count} here, and ${count} at ${quote(holder)}. All members must have the same: ` +
        'to change it, stop all of them first, or use another name.',
    )
  }

  /** The member's lease is lost: the others share out its partitions. */
  #fellOut(lease: Lease<F>): void {
    if (this.#member !== lease) return
    this.#member = undefined
    void this.#assignments.stopAll('moved')
    this.#pause.wake()
  }

  get #holdOptions() {
    const { ttlMs } = this.#options
    return {
      note: this.#note,
      // A partition that does not move is held for days.
      warnHoldMs: Number.POSITIVE_INFINITY,
      signal: this.#signal,
      ...(ttlMs !== undefined && { ttlMs }),
    }
  }

  async #list(id: string): Promise<Listed> {
    return this.#read(await this.#locker.list(this.#names.prefix, { signal: this.#signal }), id)
  }

  #read(states: readonly NameState[], id: string): Listed {
    const listed = readList(states, this.#names, this.#options.count, id)
    this.#ttlMs = listed.ttlMs ?? this.#ttlMs
    return listed
  }

  // --- looking ---------------------------------------------------------------------------------------------

  async #look(): Promise<void> {
    while (!this.#signal.aborted) {
      const usualMs = this.#ttlMs / LOOKS_PER_TTL
      let [leastMs, mostMs] = [Math.min(BURST_MS, usualMs), usualMs]
      try {
        const firstGoneMs = await this.#rebalance(this.#member ?? (await this.#join()))
        mostMs = Math.max(leastMs, this.#ttlMs / MOST_LOOKS_PER_TTL, Math.min(usualMs, firstGoneMs))
      } catch (error) {
        this.#quiet = undefined
        // Events must not make it ask a failing engine again and again (T87, hot retries after an outage).
        leastMs = usualMs
        this.#failed(error)
      }
      if (!this.#signal.aborted) await this.#pause.take(leastMs, mostMs)
    }
  }

  /** Returns after how long the first of the other members is gone, if it is dead. */
  async #rebalance(member: Lease<F>): Promise<number> {
    const quietMs = await this.#lookQuietly(member)
    if (quietMs !== undefined) return quietMs
    // Set before the list is asked for: what happens from here on ends it.
    const quiet = { members: '', looks: 0 }
    this.#quiet = quiet
    const listed = await this.#list(member.id)
    const goneMs = this.#goneMs(listed)
    // If the engine has ended its lease, the next keep-alive says so.
    if (this.#member !== member || listed.ttlMs === undefined) {
      this.#quiet = undefined
      return goneMs
    }
    const free = listed.free.filter((partition) => this.#assignments.mayTake(partition))
    const mine = [...this.#assignments.working.keys()]
    const { count } = this.#options
    const plan = planFor({ ...listed, count, pins: this.#pins }, member.id, mine, free)
    quiet.members = idsOf(listed)
    if (plan.revoke.length > 0 || plan.lacks > 0) this.#quiet = undefined
    for (const partition of plan.revoke) void this.#assignments.stop(partition, 'moved')
    this.#isLacking = plan.lacks > 0
    const taking = await Promise.allSettled(plan.take.map((partition) => this.#take(partition, member)))
    this.#isLacking = plan.lacks > taking.filter((each) => each.status === 'fulfilled' && each.value).length
    for (const each of taking) if (each.status === 'rejected') throw each.reason
    return goneMs
  }

  /** Reads only the members. Undefined: something has happened, or may have; look at everything. */
  async #lookQuietly(member: Lease<F>): Promise<number | undefined> {
    const quiet = this.#quiet
    if (quiet === undefined || quiet.looks++ >= QUIET_LOOKS) return undefined
    const state = await this.#locker.inspect(this.#names.member, { signal: this.#signal })
    const listed = this.#read(state === null ? [] : [state], member.id)
    return this.#quiet === quiet && idsOf(listed) === quiet.members ? this.#goneMs(listed) : undefined
  }

  #goneMs({ firstExpiryMs }: Listed): number {
    return firstExpiryMs + this.#locker.info.expirySlackMs(this.#ttlMs)
  }

  async #take(partition: number, member: Lease<F>): Promise<boolean> {
    const options = { ...this.#holdOptions, owner: member.id }
    const lease = await this.#locker.tryAcquire(this.#names.partition(partition), options)
    if (lease === null) return false
    if (this.#member === member) this.#assignments.start(partition, lease)
    else await lease.release()
    return true
  }

  async #watch(): Promise<void> {
    const signal = this.#signal
    while (!signal.aborted) {
      try {
        for await (const event of this.#locker.watch(this.#names.prefix, { signal })) {
          this.#quiet = undefined
          if (this.#isLacking || event.kind === 'gap' || event.name === this.#names.member) this.#pause.wake()
        }
      } catch (error) {
        this.#failed(error)
      }
      this.#quiet = undefined
      // Changes meanwhile are found by a look.
      await pause(this.#locker.clock, this.#ttlMs / LOOKS_PER_TTL, { signal })
    }
  }

  // --- failures --------------------------------------------------------------------------------------------

  #failed(error: unknown): void {
    if (this.#signal.aborted) return
    if (!isHoldfastError(error, 'CLOSED')) this.#tell(error)
    // The locker was closed, and its leases are lost. While it drains they are not, and the work goes on.
    else if (this.#member === undefined) void this.close()
  }

  #tell(error: unknown, partition?: number): void {
    const { onError } = this.#options
    const where = partition === undefined ? '' : `partition ${partition}: `
    if (onError === undefined) this.#warn(`${where}${textOf(error)}`)
    // The callback may be an async function.
    else
      new Promise<void>((resolve) => resolve(onError(error, partition))).catch((thrown: unknown) =>
        this.#warn(`onError failed: ${textOf(thrown)}`),
      )
  }

  #warn(what: string): void {
    const { name: backend, namespace } = this.#locker.info
    const warning = `partitions of ${quote(this.#options.name)}: ${what}`
    warnAgain({ backend, namespace, code: 'HOLDFAST_PARTITIONS', warning })
  }
}

function idsOf({ members }: Listed): string {
  return members.map(({ id }) => id).join()
}

function checkPins(pin: unknown, count: number): ReadonlyMap<number, string> {
  if (typeof pin !== 'object' || pin === null || Array.isArray(pin))
    throw new InvalidArgumentError('pin', 'must be an object: partitions, and the labels of lockers.')
  const pins = new Map<number, string>()
  for (const [key, label] of Object.entries(pin)) {
    const partition = /^\d{1,9}$/.test(key) ? Number(key) : Number.NaN
    if (!(partition < count))
      throw new InvalidArgumentError('pin', `has ${quote(key)}, and partitions are 0 to ${count - 1}.`)
    if (typeof label !== 'string' || label === '')
      throw new InvalidArgumentError('pin', `of ${partition} must be the label of a locker (locker.holder).`)
    pins.set(partition, label)
  }
  return pins
}
