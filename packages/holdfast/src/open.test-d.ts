/** Types that must compile and types that must not: checked by the compiler alone, never run. */
import type { Fence } from './base/fence.ts'
import type { AnyLocker, Locker } from './base/types.ts'
import { openLocker, type Requirement } from './open.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
declare function expectTrue<_T extends true>(): void
declare function needsFence(fence: Fence): void
declare const url: string

/** G12: what comes from configuration is fenced only if it was asked to be. */
export async function requirements() {
  const required = await openLocker(url, { require: 'fenced' })
  expectTrue<Equal<typeof required, Locker<'fenced'>>>()
  needsFence((await required.acquire('n')).fence)

  const withMore = await openLocker(url, { require: 'fenced', ttlMs: 5_000, holder: 'me' })
  expectTrue<Equal<typeof withMore, Locker<'fenced'>>>()

  const inLists = [
    await openLocker(url, { require: ['fenced'] }),
    await openLocker(url, { require: ['fenced', 'cluster'] }),
    await openLocker(url, { require: ['cluster', 'fenced'] }),
  ]
  expectTrue<Equal<(typeof inLists)[number], Locker<'fenced'>>>()
}

export async function noRequirement() {
  const anything = await openLocker(url)
  expectTrue<Equal<typeof anything, AnyLocker>>()
  // @ts-expect-error Not narrowed yet.
  needsFence((await anything.acquire('n')).fence)
  if (anything.fencing === 'fenced') needsFence((await anything.acquire('n')).fence)

  const cluster = await openLocker(url, { require: 'cluster' })
  expectTrue<Equal<typeof cluster, AnyLocker>>()
  // @ts-expect-error A cluster may still issue no tokens.
  needsFence((await cluster.acquire('n')).fence)

  const none = await openLocker(url, { require: [] })
  expectTrue<Equal<typeof none, AnyLocker>>()
}

/** A requirement that is only known at run time proves nothing to the compiler. */
export async function unknownRequirement(require: Requirement, several: Requirement[]) {
  const one = await openLocker(url, { require })
  expectTrue<Equal<typeof one, AnyLocker>>()
  const more = await openLocker(url, { require: several })
  expectTrue<Equal<typeof more, AnyLocker>>()
}

/** An engine of another package is offered with the module that has its `openFromUrl`. */
export async function enginesOfOthers() {
  const offered = await openLocker('acme:', {
    engines: { acme: () => import('./engines/memory/from-url.ts') },
    require: 'fenced',
  })
  expectTrue<Equal<typeof offered, Locker<'fenced'>>>()
  // @ts-expect-error A module without `openFromUrl` opens nothing.
  await openLocker('acme:', { engines: { acme: () => import('./engines/memory/index.ts') } })
}

export async function nonsense() {
  // @ts-expect-error There is no such requirement.
  await openLocker(url, { require: 'global' })
  // @ts-expect-error Misspelt.
  await openLocker(url, { requires: 'fenced' })
  // @ts-expect-error A URL is a text.
  await openLocker(new URL('memory:'))
  // @ts-expect-error A caller that wants a fenced locker must ask for it.
  const locker: Locker<'fenced'> = await openLocker(url)
  return locker
}
