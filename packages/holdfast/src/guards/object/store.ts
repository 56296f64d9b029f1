/** An object store as the guard uses it: single objects, and writes on condition of an ETag. */
import { BackendUnavailableError, type CallOutcome, InvalidArgumentError } from '../../base/errors.ts'

export type ObjectBody = string | Uint8Array

export interface StoredObject {
  readonly body: Uint8Array
  /** As `put` answers it, and as it is sent back. */
  readonly etag: string
}

export interface StoreCallOptions {
  readonly signal?: AbortSignal | undefined
}

/** At most one of them. */
export interface PutConditions {
  readonly ifMatch?: string | undefined
  readonly ifNoneMatch?: '*' | undefined
}

export interface StorePutOptions extends StoreCallOptions, PutConditions {
  readonly contentType?: string | undefined
}

export interface ObjectStore {
  /** Null if there is no such object. */
  get(key: string, options?: StoreCallOptions): Promise<StoredObject | null>
  /**
   * Answers the new ETag, or null if the condition was not met as far as the store says (404, 409, 412). A rejection may have been
   * applied, unless it is `BACKEND_UNAVAILABLE` with the outcome `not-applied`.
   */
  put(key: string, body: ObjectBody, options?: StorePutOptions): Promise<string | null>
  /** Succeeds also if there is none. */
  delete(key: string, options?: StoreCallOptions): Promise<void>
  /** All keys that begin with the prefix, in any order. */
  list(prefix: string, options?: StoreCallOptions): AsyncIterable<string>
}

export function checkStore(store: ObjectStore): ObjectStore {
  checkMethods(
    'store',
    store,
    ['get', 'put', 'delete', 'list'],
    's3Store(client, bucket) or azureStore(container)',
  )
  return store
}

export function checkMethods(
  argument: string,
  value: unknown,
  methods: readonly string[],
  make: string,
): void {
  const has = (method: string) =>
    typeof (value as Record<string, unknown> | null | undefined)?.[method] === 'function'
  if (!methods.every(has)) throw new InvalidArgumentError(argument, `must be ${make}.`)
}

/** A client's error, as far as it says how the store has answered. */
export interface Refusal {
  readonly status: number | undefined
  readonly code: string | undefined
  /** The client has sent the request more than once by itself: the answer is to one of the copies. */
  readonly isRepeated?: boolean
}

/** There is no such object. A bucket or container that is missing is another matter. */
export function isAbsent({ status, code = '' }: Refusal): boolean {
  return status === 404 && !/bucket|container/i.test(code)
}

/** The condition was not met, or another write was under way. */
export function isRefusedWrite(refusal: Refusal): boolean {
  return isAbsent(refusal) || refusal.status === 409 || refusal.status === 412
}

/** `outcome`: of a failure, where the client's error does not say. Default: a refusal of the only copy was not applied. */
export type Ask = <T>(
  work: () => Promise<T>,
  isAnswer?: (refusal: Refusal) => boolean,
  outcome?: CallOutcome,
) => Promise<T | null>

/** Makes the function that calls the client, and answers null for a refusal that is an answer. */
export function askingOf(store: string, refusalIn: (error: unknown) => Refusal): Ask {
  return async (work, isAnswer, outcome) => {
    try {
      return await work()
    } catch (cause) {
      const refusal = refusalIn(cause)
      if (isAnswer?.(refusal)) return null
      const { status, code } = refusal
      const said = status === undefined ? 'gave no answer' : `answered ${status}${code ? ` ${code}` : ''}`
      throw new BackendUnavailableError(store, `it ${said}`, outcome ?? outcomeOf(refusal), { cause })
    }
  }
}

const passing: ReadonlySet<number> = new Set([408, 429])

function outcomeOf({ status, isRepeated = false }: Refusal): CallOutcome {
  const isRefused = status !== undefined && status >= 400 && status < 500 && !passing.has(status)
  return isRefused && !isRepeated ? 'not-applied' : 'unknown'
}

/** The options without those that were left out: clients do not take `undefined` for that. */
export function given<T extends object>(options: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as { [K in keyof T]?: NonNullable<T[K]> }
}
