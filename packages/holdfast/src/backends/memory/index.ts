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
import type { Clock } from '../../core/clock.ts'
import { defaultDriftMs, defaults, limits } from '../../core/defaults.ts'
import { InvalidArgumentError } from '../../core/errors.ts'
import { type Random, systemRandom } from '../../core/ids.ts'
import { checkNamespace, checkText } from '../../core/names.ts'
import { checkInteger, checkKnownOptions } from '../../core/options.ts'
import type { Backend, BackendInfo } from '../../spi.ts'
import { MemoryBackend } from './backend.ts'
import { MemoryEngine } from './engine.ts'

export { MemoryEngine, type MemoryEngineOptions } from './engine.ts'

export interface MemoryOptions {
  /** Share one to exclude each other. Default: an engine of its own. */
  readonly engine?: MemoryEngine
  /** The client's clock. Default: the engine's. */
  readonly clock?: Clock
  readonly random?: Random
  readonly namespace?: string
  /** Default: `memory:<engine>/<namespace>`, different for every engine. */
  readonly issuer?: string
  readonly epoch?: number
}

export function memory(options: MemoryOptions = {}): Backend<'fenced'> {
  checkKnownOptions('memory options', options, ['engine', 'clock', 'random', 'namespace', 'issuer', 'epoch'])
  if (options.engine !== undefined && !(options.engine instanceof MemoryEngine))
    throw new InvalidArgumentError('engine', 'must be a MemoryEngine.')
  const random = options.random ?? systemRandom
  const engine =
    options.engine ?? new MemoryEngine({ ...(options.clock && { clock: options.clock }), random })
  return new MemoryBackend({
    engine,
    ownsEngine: options.engine === undefined,
    info: infoOf(engine, options),
    clock: options.clock ?? engine.clock,
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

function infoOf(engine: MemoryEngine, options: MemoryOptions): BackendInfo<'fenced'> {
  const namespace = checkNamespace(options.namespace ?? defaults.namespace)
  return {
    name: 'memory',
    scope: 'process',
    fencing: 'fenced',
    namespace,
    issuer: checkText('issuer', options.issuer ?? `memory:${engine.id}/${namespace}`, limits.issuerBytes),
    epoch: checkInteger('epoch', options.epoch ?? 0, { min: 0, max: limits.maxEpoch }),
    modes: ['exclusive', 'shared', 'permits'],
    waiting: 'queue',
    lockDelay: 'server',
    holdAtLeast: 'server',
    data: true,
    ttlMs: { min: 20, max: 86_400_000, step: 1 },
    driftMs: defaultDriftMs,
    // The engine acts by a timer of the event loop, which counts in whole milliseconds.
    expirySlackMs: 5,
    assumptions: [
      'All who must exclude each other use the same MemoryEngine object, in one process.',
      'The engine and its count of tokens end with the process: a resource that outlives it must not be given ' +
        'an issuer of your own choosing without a higher epoch at every start. The default issuer is a new one each time.',
    ],
    confirmed: 'A keep-alive that the engine has applied, counted from before it was asked.',
  }
}
