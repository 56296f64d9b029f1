/** The common stage of the cases: fences, leases, and what it means that a guard accepts or refuses. */

import assert from 'node:assert/strict'
import { systemClock } from '../../base/clock.ts'
import { type ErrorByCode, type ErrorCode, isHoldfastError, LeaseLostError } from '../../base/errors.ts'
import { type Fence, makeFence } from '../../base/fence.ts'
import type { FencedLease, LeaseState } from '../../base/types.ts'
import { settledWithin } from '../../base/within.ts'
import type { EnterOptions, Guard, GuardOptions, Proof } from '../../guards/guard.ts'
import type { GuardWorld } from './world.ts'

export interface FenceFields {
  readonly name?: string
  readonly mode?: 'exclusive' | 'shared'
  readonly issuer?: string
  readonly grant?: string
}

export const ISSUER = 'test/issuer'

export class GuardStage<Tx = unknown> {
  readonly world: GuardWorld<Tx>
  /** Every name that a fence was made for, so that a refusal can be shown to have changed none of them. */
  readonly #names = new Set<string>(['n'])

  constructor(world: GuardWorld<Tx>) {
    this.world = world
  }

  guard(options?: GuardOptions): Promise<Guard<Tx>> {
    return this.world.guard(options)
  }

  /** A fence as a locker would issue it; by default every token has a grant of its own. */
  fence(token: bigint, fields: FenceFields = {}): Fence {
    const { name = 'n', mode = 'exclusive', issuer = ISSUER, grant = `g${token}` } = fields
    this.#names.add(name)
    return makeFence({ issuer, name, mode, token, grant })
  }

  shared(token: bigint, fields: FenceFields = {}): Fence {
    return this.fence(token, { mode: 'shared', ...fields })
  }

  /** The effect runs once, and is stored. */
  async accepts(guard: Guard<Tx>, proof: Proof | readonly Proof[], options?: EnterOptions): Promise<void> {
    const value = `effect ${effects++}`
    let calls = 0
    const result = await guard.run(
      proof,
      async (tx) => {
        calls++
        await this.world.write(tx, 'resource', value)
        return value
      },
      options,
    )
    assert.equal(calls, 1)
    assert.equal(result, value)
    assert.equal(await this.world.stored('resource'), value)
  }

  /** The effect does not run, and neither the resource nor what the guard remembers changes. */
  async refuses<C extends ErrorCode>(
    guard: Guard<Tx>,
    code: C,
    proof: unknown,
    options?: EnterOptions,
  ): Promise<ErrorByCode[C]> {
    const before = await this.snapshot(guard)
    let calls = 0
    const error = await failureOf(guard.run(proof as Proof, () => void calls++, options))
    assert.ok(isHoldfastError(error, code), `expected ${code}, got ${String(error)}`)
    assert.equal(calls, 0, 'the effect of a refused proof must not run')
    assert.deepEqual(await this.snapshot(guard), before)
    return error
  }

  /** All that can be seen of a guard and its resource. */
  async snapshot(guard: Guard<Tx>): Promise<unknown> {
    const highest = []
    for (const name of [...this.#names].sort()) highest.push([name, await guard.highest(name)])
    return { highest, stored: await this.world.stored('resource') }
  }

  async highestToken(guard: Guard<Tx>, name = 'n'): Promise<bigint | null> {
    return (await guard.highest(name))?.token ?? null
  }
}

let effects = 0

export async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise
  } catch (error) {
    return error
  }
  return assert.fail('expected a rejection')
}

/** A guard that makes a caller wait for ever must fail its case, and not hang the run. */
export function soon<T>(promise: Promise<T>): Promise<T> {
  const reason = () => new Error('it should have been over by now')
  return settledWithin(systemClock, 2_000, promise, { reason, keepsProcessAlive: true })
}

/** A lease whose state the case decides. */
export class StageLease implements FencedLease {
  readonly fencing = 'fenced'
  readonly fence: Fence
  readonly holder = 'stage'
  readonly remainingMs = 1_000
  readonly previousData = undefined
  readonly #controller = new AbortController()
  state: LeaseState = 'held'

  constructor(fence: Fence) {
    this.fence = fence
  }

  get id(): string {
    return this.fence.grant
  }

  get name(): string {
    return this.fence.name
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  lose(): LeaseLostError {
    const error = new LeaseLostError(this.name, 'taken-over')
    this.state = 'lost'
    this.#controller.abort(error)
    return error
  }

  async release(): Promise<'released'> {
    this.state = 'released'
    return 'released'
  }

  async ensure(): Promise<void> {}
  async renew(): Promise<void> {}
  async setData(): Promise<void> {}
  async [Symbol.asyncDispose](): Promise<void> {}
}
