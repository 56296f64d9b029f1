/** Opens a locker from a URL, so that moving to another engine is a change of configuration. */
import { InvalidArgumentError, quote, UnsupportedError } from './base/errors.ts'
import { checkFunction, checkKnownOptions, checkOneOf } from './base/options.ts'
import type { AnyLocker, Locker } from './base/types.ts'
import { type Engines, LockerUrl } from './kit/url.ts'
import { createLocker, type LockerOptions } from './locker/locker.ts'
import type { Backend, Fencing } from './spi.ts'

export interface OpenLockerOptions extends LockerOptions {
  /** Refuses to start on a backend that does not promise this (G12). */
  readonly require?: Requirement | readonly Requirement[]
  /**
   * Engines of other packages, by the scheme of their URLs: `{ acme: () => import('holdfast-acme') }`. The module exports
   * `openFromUrl(url)`. It is loaded when a URL has its scheme. A scheme of Holdfast's own is refused.
   */
  readonly engines?: Engines
}

export type Requirement = 'fenced' | 'cluster'

type RequiresFencing = {
  readonly require:
    | 'fenced'
    | readonly ['fenced']
    | readonly ['fenced', 'cluster']
    | readonly ['cluster', 'fenced']
}

/** Engines of this package; each is loaded only when it is asked for. */
const schemes: Engines = {
  memory: () => import('./engines/memory/from-url.ts'),
  sqlite: () => import('./engines/sqlite/locks/from-url.ts'),
  redis: () => import('./engines/redis/locks/from-url.ts'),
  rediss: () => import('./engines/redis/locks/from-url.ts'),
  redlock: () => import('./engines/redis/redlock/from-url.ts'),
  postgres: () => import('./engines/postgres/locks/from-url.ts'),
  postgresql: () => import('./engines/postgres/locks/from-url.ts'),
  'postgres+advisory': () => import('./engines/postgres/advisory/from-url.ts'),
  etcd: () => import('./engines/etcd/locks/from-url.ts'),
  etcds: () => import('./engines/etcd/locks/from-url.ts'),
  zookeeper: () => import('./engines/zookeeper/locks/from-url.ts'),
  zookeepers: () => import('./engines/zookeeper/locks/from-url.ts'),
  consul: () => import('./engines/consul/locks/from-url.ts'),
  consuls: () => import('./engines/consul/locks/from-url.ts'),
}

/**
 * `memory:`, `memory:shared-name`, `sqlite:path/to/file.db`, `redis://host:port`, `redlock://a,b,c`,
 * `postgres://host:port/database`, `postgres+advisory://host:port/database`, `etcd://a,b,c`, `zookeeper://a,b,c` or `consul://a,b,c`,
 * with options as query parameters: `?namespace=…&issuer=…&epoch=…`. Over TLS: `rediss:`, `etcds:`, `zookeepers:`, `consuls:`.
 *
 * The locker keeps the process alive only while a call is pending. With postgres.js it does until it is closed, because that
 * library has no documented way to let a process end while a connection is open.
 */
export function openLocker(
  url: string,
  options: OpenLockerOptions & RequiresFencing,
): Promise<Locker<'fenced'>>
export function openLocker(url: string, options?: OpenLockerOptions): Promise<AnyLocker>
export async function openLocker(url: string, options: OpenLockerOptions = {}): Promise<AnyLocker> {
  checkKnownOptions('options', options, ['require', 'engines', 'ttlMs', 'waitMs', 'holder', 'callTimeoutMs'])
  const { require = [], engines, ...lockerOptions } = options
  const requirements = [require]
    .flat()
    .map((each) => checkOneOf<Requirement>('require', each, ['fenced', 'cluster']))
  const backend = await openBackend(url, engines)
  try {
    for (const requirement of requirements) checkRequirement(backend, requirement)
    return createLocker(backend, lockerOptions) as AnyLocker
  } catch (error) {
    await backend[Symbol.asyncDispose]()
    throw error
  }
}

const SCHEME = /^[a-z][a-z0-9+]*$/

/** The backend itself, for tools that carry a session from one process to another (`attachSession`). Dispose of it. */
export async function openBackend(url: string, engines: Engines = {}): Promise<Backend<Fencing>> {
  if (typeof url !== 'string')
    throw new InvalidArgumentError('url', `must be a string such as 'sqlite:locks.db', not ${typeof url}.`)
  const [, written, rest = ''] = /^([a-z][a-z0-9+]*):(.*)$/is.exec(url) ?? []
  const scheme = written?.toLowerCase()
  const offered = allEngines(engines)
  const known = [...offered.keys()].map((each) => `${each}:`)
  // An unknown URL is shown by its scheme alone: the rest may hold a password.
  if (scheme === undefined)
    throw new InvalidArgumentError(
      'url',
      `must start with a scheme (a file is written sqlite:locks.db); there are: ${known.join(', ')}.`,
    )
  const load = offered.get(scheme)
  if (load === undefined)
    throw new InvalidArgumentError(
      'url',
      `has the scheme ${quote(`${scheme}:`)}, which no backend answers to; there are: ${known.join(', ')}.`,
    )
  const parsed = new LockerUrl(scheme, rest)
  const engine = await load()
  if (typeof engine?.openFromUrl !== 'function')
    throw new InvalidArgumentError(
      'engines',
      `must load for ${scheme}: a module that exports openFromUrl(url).`,
    )
  const backend = await engine.openFromUrl(parsed)
  if (typeof backend?.[Symbol.asyncDispose] !== 'function' || typeof backend.info !== 'object')
    throw new InvalidArgumentError(
      'engines',
      `must load for ${scheme}: a module whose openFromUrl(url) returns a backend.`,
    )
  return backend
}

/** Holdfast's own, and those that were given. None may take another's place: a program would lock somewhere else unnoticed. */
function allEngines(given: Engines): ReadonlyMap<string, Engines[string]> {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new InvalidArgumentError('engines', 'must be an object: { acme: () => import(…) }.')
  for (const [scheme, load] of Object.entries(given)) {
    if (!SCHEME.test(scheme))
      throw new InvalidArgumentError(
        'engines',
        `has the scheme ${quote(scheme)}; a scheme is a lower-case letter, then lower-case letters, digits and +.`,
      )
    if (Object.hasOwn(schemes, scheme))
      throw new InvalidArgumentError(
        'engines',
        `has the scheme ${quote(scheme)}, which is one of Holdfast's own.`,
      )
    checkFunction(`engines.${scheme}`, load)
  }
  return new Map([...Object.entries(schemes), ...Object.entries(given)])
}

function checkRequirement({ info }: Backend<Fencing>, requirement: Requirement): void {
  if (requirement === 'fenced' && info.fencing !== 'fenced')
    throw new UnsupportedError(
      `${info.name} issues no fencing tokens here, and require: 'fenced' was asked for. ` +
        (info.name === 'redis'
          ? 'Add ?fencing=clock-backed to the URL, or choose another engine.'
          : 'Choose another engine.'),
    )
  if (requirement === 'cluster' && info.scope !== 'cluster')
    throw new UnsupportedError(
      `${info.name} excludes within one ${info.scope} only, and require: 'cluster' was asked for. ` +
        'Choose an engine that all your machines can reach.',
    )
}
