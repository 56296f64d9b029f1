/**
 * How long a name must stay closed although it has no holder: for the lock-delay of a holder whose time ran out, and for
 * what a holder promised to hold at least. An earlier grant breaks that promise (T23, timed waits).
 *
 *   the engine ends it for its time    from the end of that time, by the engine's clock
 *   its client gives it up             from there; the engine is told, and has it until then
 *   an operator takes it away, or its locker is closed: no delay is promised
 */

import type { LossReason } from '../../packages/holdfast/src/base/errors.ts'
import { publicIdOf } from '../../packages/holdfast/src/base/ids.ts'
import { shortId } from './engine/messages.ts'
import type { ClaimState, Ending, NameState } from './engine/state.ts'
import type { TrackedLease } from './tracked.ts'
import type { World } from './world.ts'

interface Promised {
  readonly leaseId: string
  readonly what: 'lock-delay' | 'hold-at-least'
  readonly untilMs: number
}

const byTime: ReadonlySet<LossReason | undefined> = new Set<LossReason>([
  'expired',
  'unreachable',
  'max-hold',
])
/** The least that another clock makes of a duration, and the grace for the moment in which it begins. 0.98: 980 ms of a second. */
const LEAST_SHARE = 0.98
const GRACE_MS = 2

export class ClosedNames {
  readonly #world: World
  readonly #promised = new Map<string, Promised>()
  readonly #grantedAtMs = new Map<string, number>()

  constructor(world: World) {
    this.#world = world
  }

  /** Its signal has aborted. */
  lost(lease: TrackedLease): void {
    const { lockDelayMs = 0 } = lease.options
    if (lockDelayMs > 0 && byTime.has(lease.lossReason))
      this.#promise(lease, 'lock-delay', this.#world.nowMs + lockDelayMs * LEAST_SHARE)
  }

  released(lease: TrackedLease): void {
    const { holdAtLeastMs = 0 } = lease.options
    const grantedAtMs = this.#grantedAtMs.get(lease.id)
    if (holdAtLeastMs > 0 && grantedAtMs !== undefined)
      this.#promise(lease, 'hold-at-least', grantedAtMs + holdAtLeastMs * LEAST_SHARE)
  }

  /** Only as long as the engine has it: once it is gone there, nothing can be promised to anybody any more. */
  #promise({ id: leaseId, name }: TrackedLease, what: Promised['what'], untilMs: number): void {
    const holders = this.#world.engine.engine.names.get(name)?.holders
    if (holders !== undefined && has(holders, leaseId))
      this.#keep(name, { leaseId, what, untilMs: untilMs - GRACE_MS })
  }

  #keep(name: string, promised: Promised): void {
    const before = this.#promised.get(name)
    if (before === undefined || before.untilMs < promised.untilMs) this.#promised.set(name, promised)
  }

  ended({ attempt, name, lockDelayMs, session, token }: ClaimState, ending: Ending): void {
    const leaseId = publicIdOf(attempt)
    const before = this.#promised.get(name)
    if (ending === 'expired' && token !== null && lockDelayMs > 0) {
      const untilMs = (session.prolongedAtMs + session.ttlMs + lockDelayMs) / this.#world.settings.engineRate
      if (before?.leaseId === leaseId) this.#promised.delete(name)
      this.#keep(name, { leaseId, what: 'lock-delay', untilMs: untilMs - 0.01 })
    } else if (before?.leaseId === leaseId && this.#isUnpromised(ending, session.address))
      this.#promised.delete(name)
    // Changes that a crash takes back have not happened.
    this.#world.engine.journal.note(() => {
      if (before === undefined) this.#promised.delete(name)
      else this.#promised.set(name, before)
    })
  }

  #isUnpromised(ending: Ending, address: string): boolean {
    return (
      ending === 'forced' || ending === 'deleted' || (ending === 'closed' && this.#world.isClosing(address))
    )
  }

  granted({ attempt }: ClaimState, { name, holders }: NameState): void {
    const world = this.#world
    this.#grantedAtMs.set(publicIdOf(attempt), world.nowMs)
    const promised = this.#promised.get(name)
    if (promised === undefined || has(holders, promised.leaseId)) return
    if (world.nowMs >= promised.untilMs) {
      this.#promised.delete(name)
      world.count(`kept ${promised.what}`)
      return
    }
    const earlyMs = Math.round(promised.untilMs - world.nowMs)
    world.fail(
      'T23',
      `${name} was given to ${shortId(attempt)} ${earlyMs} ms before the end of the ${promised.what} of ${shortId(promised.leaseId)}`,
    )
  }
}

/** Beside a holder that has not left yet others may still come in: the name closes when it leaves. */
function has(holders: NameState['holders'], leaseId: string): boolean {
  for (const { attempt } of holders.values()) if (publicIdOf(attempt) === leaseId) return true
  return false
}
