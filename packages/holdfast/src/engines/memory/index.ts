/**
 * Locks for the tasks of one process, and for tests: the reference that every other engine is compared with.
 *
 * ```ts
 * const locker = createLocker(memory())
 * ```
 *
 * Lockers exclude each other when they share an engine:
 *
 * ```ts
 * const engine = new MemoryEngine()
 * const one = createLocker(memory({ engine }))
 * const other = createLocker(memory({ engine }))
 * ```
 */

import type { Clock } from '../../base/clock.ts'
import { InvalidArgumentError } from '../../base/errors.ts'
import { type Random, systemRandom } from '../../base/ids.ts'
import { checkKnownOptions } from '../../base/options.ts'
import { checkIdentity } from '../../kit/backend-kit.ts'
import { describeInfo } from '../../kit/info.ts'
import type { Backend } from '../../spi.ts'
import { MemoryBackend } from './backend.ts'
import { MemoryEngine as Engine, type MemoryEngineOptions } from './engine.ts'

export type { MemoryEngineOptions } from './engine.ts'

/** The engine as its users see it: they hand it to `memory`, and tests may look at it and do it harm. */
export interface MemoryEngine extends Disposable {
  /** Tells this engine from every other, also after a restart of the process. */
  readonly id: string
  readonly clock: Clock
  /** Everything that the engine keeps; all zero when everything has been given back. */
  stats(): { sessions: number; names: number; waiters: number; deadlines: number }
  /** The holders and the data of a name vanish, as if an operator had deleted its record (T34, deleted keys). No client is told why. */
  deleteName(namespace: string, name: string): void
  /** Stops the engine's timer. What is waiting stays where it is. */
  [Symbol.dispose](): void
}

export const MemoryEngine: new (options?: MemoryEngineOptions) => MemoryEngine = Engine

export interface MemoryOptions {
  /** Share one to exclude each other. Default: an engine of its own. */
  readonly engine?: MemoryEngine
  /** The client's clock. Default: the engine's. */
  readonly clock?: Clock
  readonly random?: Random
  readonly namespace?: string
  /** Default: `memory:<engine>/<namespace>`, different for every engine. */
  readonly issuer?: string
  /** The top bits of every token: all tokens of epoch 1 are greater than all of epoch 0. Default 0. */
  readonly epoch?: number
}

export function memory(options: MemoryOptions = {}): Backend<'fenced'> {
  checkKnownOptions('memory options', options, ['engine', 'clock', 'random', 'namespace', 'issuer', 'epoch'])
  const { clock, random = systemRandom } = options
  const { engine = new Engine({ ...(clock && { clock }), random }) } = options
  if (!(engine instanceof Engine)) throw new InvalidArgumentError('engine', 'must be a MemoryEngine.')
  const { namespace, issuer = `memory:${engine.id}/${namespace}`, epoch } = checkIdentity(options)
  const info = describeInfo({
    name: 'memory',
    scope: 'process',
    fencing: 'fenced',
    namespace,
    issuer,
    epoch,
    ttlMs: { min: 20, max: 86_400_000, step: 1 },
    // The engine acts by a timer of the event loop, which counts in whole milliseconds.
    expirySlackMs: () => 5,
    prolongation: 'committed',
    assumptions: [
      'All clients that must exclude each other use the same MemoryEngine object, in one process.',
      'The engine and its count of tokens end with the process: a resource that outlives it must not be given ' +
        'an issuer of your own choosing without a higher epoch at every start. The default issuer is a new one each time.',
    ],
    confirmed: 'A keep-alive that the engine has applied, counted from before it was asked.',
  })
  return new MemoryBackend({
    engine,
    ownsEngine: options.engine === undefined,
    info,
    clock: clock ?? engine.clock,
    random,
  })
}

const sharedEngines = new Map<string, MemoryEngine>()

/** The engine that all lockers opened with `memory:<name>` in this process share. It lives as long as the process. */
export function sharedMemoryEngine(name: string): MemoryEngine {
  const engine = sharedEngines.get(name) ?? new MemoryEngine()
  sharedEngines.set(name, engine)
  return engine
}
