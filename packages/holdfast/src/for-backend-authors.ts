/**
 * What the author of a backend imports, as `holdfast/spi`: the interface, and the helpers with which Holdfast's own
 * backends are written. Errors and defaults are in `holdfast`, the conformance suite is in `holdfast/testing`.
 */

export { callWith, unlessAborted } from './core/aborting.ts'
export {
  calledOff,
  checkIdentity,
  type IdentityOptions,
  listAll,
  operatorCallExpired,
  pageOf,
  prolongedSince,
  throwIfCalledOff,
  tokenGrant,
} from './core/backend-kit.ts'
export { Cancellation, unlessCancelled } from './core/cancellation.ts'
export { elapsedMs, instantOf, laterOf, sleep, systemClock } from './core/clock.ts'
export { Coalescer, type SendBatch, type Settled } from './core/coalescer.ts'
export { defaultDriftMs } from './core/defaults.ts'
export { publicIdOf, systemRandom } from './core/ids.ts'
export { checkNamespace, checkText, compareNames, escapeName, unescapeName } from './core/names.ts'
export { checkInteger, checkKnownOptions, checkNumber, checkOneOf } from './core/options.ts'
export { openBackend } from './open.ts'
export * from './spi.ts'
