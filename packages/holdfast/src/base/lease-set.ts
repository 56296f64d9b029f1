/** Several leases acquired as one. */

import type { Fencing } from '../spi.ts'
import { InvalidArgumentError } from './errors.ts'
import { checkName, compareNames } from './names.ts'
import type { CallOptions, Lease, LeaseSet, ReleaseOutcome } from './types.ts'

/** Every client locks several names in the same order, so that two of them cannot wait for each other. */
export function canonicalOrder(names: readonly string[]): readonly string[] {
  if (!Array.isArray(names) || names.length === 0)
    throw new InvalidArgumentError('names', 'must be a list of at least one name.')
  // Array.from also visits holes, which `map` would skip unchecked.
  const sorted = Array.from(names, (name) => checkName(name, 'names')).sort(compareNames)
  const twice = sorted.find((name, index) => index > 0 && sorted[index - 1] === name)
  if (twice !== undefined)
    throw new InvalidArgumentError('names', `must not have a name twice: ${JSON.stringify(twice)}.`)
  return sorted
}

export class HeldLeases<F extends Fencing> implements LeaseSet<F> {
  readonly leases: readonly Lease<F>[]

  constructor(leases: readonly Lease<F>[]) {
    this.leases = leases
  }

  get fences(): LeaseSet<F>['fences'] {
    const fences = this.leases.flatMap((lease) => (lease.fencing === 'fenced' ? [lease.fence] : []))
    return fences as unknown as LeaseSet<F>['fences']
  }

  get(name: string): Lease<F> {
    const found = this.leases.find((lease) => lease.name === name)
    if (found === undefined)
      throw new InvalidArgumentError('name', `${JSON.stringify(name)} is not one of the set's names.`)
    return found
  }

  get signal(): AbortSignal {
    return AbortSignal.any(this.leases.map((lease) => lease.signal))
  }

  get remainingMs(): number {
    return Math.min(...this.leases.map((lease) => lease.remainingMs))
  }

  release(options?: CallOptions): Promise<readonly ReleaseOutcome[]> {
    return Promise.all(this.leases.map((lease) => lease.release(options)))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release()
  }
}
