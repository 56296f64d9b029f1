/**
 * A guard for objects of an S3-like store, one object for each name. Data goes to a new key each time; what a writer changes
 * on condition is a small head object beside it, which has the mark and says where the data is.
 *
 * ```ts
 * import { S3 } from '@aws-sdk/client-s3'
 * import { objectGuard, s3Store } from 'holdfast/guards/object'
 *
 * const guard = objectGuard({ store: s3Store(new S3({}), 'reports') })
 *
 * await guard.put(lease, JSON.stringify(report), { contentType: 'application/json' })
 * await guard.run(lease, async (tx) => {
 *   const stock = JSON.parse(new TextDecoder().decode(await tx.get() ?? empty))
 *   tx.put(JSON.stringify({ ...stock, units: stock.units - 1 }))
 * })
 * ```
 */

import type { Clock } from '../base/clock.ts'
import { InvalidArgumentError, quote } from '../base/errors.ts'
import { type Random, systemRandom } from '../base/ids.ts'
import { checkText } from '../base/names.ts'
import { checkFunction, checkInteger } from '../base/options.ts'
import type { Guard, GuardOptions, Proof, RunOptions } from './guard.ts'
import { checkStore, type ObjectBody, type ObjectStore } from './object/store.ts'
import { StoreGuard } from './object/store-guard.ts'
import { checkGuardOptions } from './settings.ts'

export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from './guard.ts'
export { type AzureContainer, azureStore } from './object/azure.ts'
export { type S3Client, s3Store } from './object/s3.ts'
export type {
  ObjectBody,
  ObjectStore,
  PutConditions,
  StoreCallOptions,
  StoredObject,
  StorePutOptions,
} from './object/store.ts'

export interface ObjectGuardOptions extends Omit<GuardOptions, 'forgetAfterMs'> {
  readonly store: ObjectStore
  /**
   * The key of a name's object; default: the name itself. Holdfast writes `<key>.head` and keys that begin with `<key>.d/`, so no
   * key may end in `.head`.
   */
  readonly key?: (name: string) => string
  /** For one request to the store; upload and download of the data are one each. Default 30,000. */
  readonly callTimeoutMs?: number
  readonly clock?: Clock
  readonly random?: Random
}

export interface ObjectPutOptions {
  readonly contentType?: string
}

/** The object of the name, in one run. */
export interface ObjectTx {
  /**
   * The data, or null if there is none. The first read of a new holder is remembered at once, also if the effect fails later
   * (T40, unchecked reads).
   */
  get(): Promise<Uint8Array | null>
  /** Written when the effect has returned. */
  put(body: ObjectBody, options?: ObjectPutOptions): void
  delete(): void
}

/**
 * `enter` and `prune` are `UNSUPPORTED`, and so are several proofs in one call: the store has no transactions over several
 * objects, and a mark stays for as long as its head.
 */
export interface ObjectGuard extends Guard<ObjectTx> {
  /** Three requests the first time a lease comes here, then two. */
  get(proof: Proof, options?: RunOptions): Promise<Uint8Array | null>
  /** Two requests, if this guard has seen the lease before; else three. It replaces whatever is there. */
  put(proof: Proof, body: ObjectBody, options?: ObjectPutOptions & RunOptions): Promise<void>
  /** Leaves a head without data. */
  delete(proof: Proof, options?: RunOptions): Promise<void>
  /** Deletes data of earlier holders that was replaced, or whose write was never finished. Answers how many there were. */
  collect(name: string, options?: { readonly signal?: AbortSignal }): Promise<number>
}

const DEFAULT_CALL_TIMEOUT_MS = 30_000
/** Stores take 1,024 bytes; the data's key is longer than its object's. */
const MAX_KEY_BYTES = 900

export function objectGuard(options: ObjectGuardOptions): ObjectGuard {
  const settings = checkGuardOptions(options, ['store', 'key', 'callTimeoutMs', 'random'])
  if ('forgetAfterMs' in options)
    throw new InvalidArgumentError(
      'forgetAfterMs',
      'is not for objects: a mark stays for as long as its head.',
    )
  const { store, key: keyOf = (name) => name, random = systemRandom } = options
  checkFunction('key', keyOf)
  return new StoreGuard(settings, {
    store: checkStore(store),
    keyOf: (name) => checkKey(keyOf(name)),
    callTimeoutMs: checkInteger('callTimeoutMs', options.callTimeoutMs ?? DEFAULT_CALL_TIMEOUT_MS, {
      min: 1,
    }),
    clock: settings.clock,
    random,
  })
}

function checkKey(key: unknown): string {
  const checked = checkText('key', key, MAX_KEY_BYTES)
  if (checked.endsWith('.head'))
    throw new InvalidArgumentError(
      'key',
      `${quote(checked)} ends in .head, which is for the heads of objects.`,
    )
  return checked
}
