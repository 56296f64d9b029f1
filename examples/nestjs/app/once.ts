/**
 * `@Once(name)`: of all processes, one runs the method for each name, and the others find it done.
 *
 * The lease is the last argument of the method. Show it to a guard: a process that was frozen past its lease is refused by the
 * resource, not by the decorator. That it was done is kept with the name (`setData`). A crash between the effect and that note lets
 * the next process run the method again, so store effect and note in one transaction where twice would hurt.
 */
import { Inject } from '@nestjs/common'
import type { AcquireOptions, FencedLease, Locker } from 'holdfast'
import { LOCKER } from './holdfast.module.js'

const DONE = 'done'
const locker = Symbol('locker')

interface WithLocker {
  readonly [locker]: Locker<'fenced'>
}

/** The caller leaves the lease out; the decorator adds it. */
type Method<Args extends unknown[], T> = (...args: [...Args, lease?: FencedLease]) => Promise<T | undefined>

export function Once<Args extends unknown[]>(name: (...args: Args) => string, options: AcquireOptions = {}) {
  return <T>(
    service: object,
    _method: string | symbol,
    descriptor: TypedPropertyDescriptor<Method<Args, T>>,
  ): void => {
    Inject(LOCKER)(service, locker)
    const run = descriptor.value
    if (run === undefined) throw new Error('@Once() belongs to a method.')
    descriptor.value = function (this: WithLocker, ...args: unknown[]) {
      const own = args.slice(0, run.length - 1) as Args
      return this[locker].withLease(name(...own), options, async (lease) => {
        if (lease.previousData === DONE) return undefined
        const result = await run.apply(this, [...own, lease])
        await lease.setData(DONE)
        return result
      })
    } as unknown as Method<Args, T>
  }
}
