/**
 * Operators' calls. Each looks at the name first and then names what it saw, with an expiry. So a copy that the client
 * library resends, or that lands after the operator has cancelled, does not touch what came later (T78, late operators; G7).
 *
 *   look ──▶ act on what was seen ──▶ done
 *     ▲             │
 *     └── changed ──┘   MAX_LOOKS times at most
 */

import { callWith } from '../base/aborting.ts'
import { limits } from '../base/defaults.ts'
import {
  BackendUnavailableError,
  CapacityMismatchError,
  InvalidArgumentError,
  quote,
  UnsupportedError,
} from '../base/errors.ts'
import { withoutEpoch } from '../base/fence.ts'
import { checkText } from '../base/names.ts'
import type { CallOptions, ForceReleaseOptions } from '../base/types.ts'
import { type Backend, type Call, LOCK_CAPACITY, type NameState, type OperatorCall } from '../spi.ts'
import { changingNothing } from './call.ts'
import type { LockerContext } from './context.ts'

/** Makes one call to the engine, bounded and cancellable. */
export type CallOnce = <T>(
  what: string,
  options: CallOptions | undefined,
  run: (call: Call) => Promise<T>,
) => Promise<T>

const MAX_LOOKS = 3

type Holder = NameState['holders'][number]
type Terms = Pick<LockerContext, 'backendName' | 'callTimeoutMs'>

export class Operating {
  readonly #backend: Backend
  readonly #context: Terms
  readonly #callOnce: CallOnce

  constructor(backend: Backend, context: Terms, callOnce: CallOnce) {
    this.#backend = backend
    this.#context = context
    this.#callOnce = callOnce
  }

  async forceRelease(
    name: string,
    isMeant: (holder: Holder) => boolean,
    reason: string,
    options: CallOptions,
  ): Promise<number> {
    const what = `force release of ${quote(name)}`
    const seen = await this.#look(what, name, options)
    const ids = seen?.holders.filter(isMeant).map(({ id }) => id) ?? []
    if (seen === null || ids.length === 0) return 0
    return this.#act(what, seen, options, (call) => this.#backend.forceRelease(name, ids, reason, call))
  }

  async resize(
    name: string,
    to: number,
    options: CallOptions | undefined,
  ): Promise<'resized' | 'in-use' | 'not-found'> {
    const { backendName } = this.#context
    if (!this.#backend.info.modes.includes('permits'))
      throw new UnsupportedError(`${backendName} has no semaphores, so there is no capacity to change.`)
    const what = `resize of ${quote(name)}`
    for (let looks = 0; looks < MAX_LOOKS; looks++) {
      const seen = await this.#look(what, name, options)
      if (seen === null || !isInUse(seen)) return 'not-found'
      const { capacity: from } = seen
      if (from === LOCK_CAPACITY) throw new CapacityMismatchError(name, to, from)
      if (from === to) return 'resized'
      const outcome = await this.#act(what, seen, options, (call) =>
        this.#backend.resize(name, { from, to }, call),
      )
      if (outcome !== 'changed') return outcome
    }
    throw this.#keepsChanging(what)
  }

  async forget(
    name: string,
    options: CallOptions | undefined,
  ): Promise<'forgotten' | 'in-use' | 'not-found'> {
    const what = `forget of ${quote(name)}`
    for (let looks = 0; looks < MAX_LOOKS; looks++) {
      const seen = await this.#look(what, name, options)
      const data = seen?.data
      if (seen !== null && isInUse(seen)) return 'in-use'
      // At a later look, the data that was seen before is gone.
      if (seen === null || data === undefined) return looks === 0 ? 'not-found' : 'forgotten'
      const outcome = await this.#act(what, seen, options, (call) => this.#backend.forget(name, data, call))
      if (outcome !== 'changed') return outcome
    }
    throw this.#keepsChanging(what)
  }

  #look(what: string, name: string, options: CallOptions | undefined): Promise<NameState | null> {
    return changingNothing(this.#callOnce(what, options, (call) => this.#backend.inspect(name, call)))
  }

  #act<T>(
    what: string,
    seen: NameState,
    options: CallOptions | undefined,
    run: (call: OperatorCall) => Promise<T>,
  ): Promise<T> {
    const notAfterMs = seen.atMs + this.#context.callTimeoutMs
    return this.#callOnce(what, options, (call) => run(callWith(call.signal, { notAfterMs })))
  }

  #keepsChanging(what: string): BackendUnavailableError {
    return new BackendUnavailableError(
      this.#context.backendName,
      `${what}: the name changed between each look at it and the call, ${MAX_LOOKS} times. Try again`,
      'not-applied',
    )
  }
}

function isInUse({ holders, waiters }: NameState): boolean {
  return holders.length > 0 || waiters.length > 0
}

/** Whom an operator means: holders by label, one by its token or its id, or all of them. */
export function holdersMeantBy(options: ForceReleaseOptions, epoch: number): (holder: Holder) => boolean {
  const given = [options.holder, options.token, options.id, options.all].filter(
    (value) => value !== undefined,
  )
  if (given.length !== 1)
    throw new InvalidArgumentError(
      'options',
      'must say whom to release: exactly one of holder, token, id, or all: true.',
    )
  if (options.holder !== undefined) {
    const label = checkText('holder', options.holder, limits.holderBytes)
    return ({ holder }) => holder === label
  }
  if (options.id !== undefined) {
    const meant = checkText('id', options.id, limits.holderBytes)
    return ({ id }) => id === meant
  }
  if (options.all !== undefined) {
    if (options.all !== true) throw new InvalidArgumentError('all', 'must be true if it is given.')
    return () => true
  }
  if (typeof options.token !== 'bigint' || options.token < 1n)
    throw new InvalidArgumentError('token', 'must be a positive bigint, as in lease.fence.token.')
  const raw = withoutEpoch(epoch, options.token)
  return ({ token }) => raw !== null && token === raw
}
