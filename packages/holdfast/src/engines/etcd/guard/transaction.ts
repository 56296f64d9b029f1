/** Reads and writes of a program, as one transaction of etcd: reads are made at once, and compared when the writes are made. */
import { limits } from '../../../base/defaults.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import { checkText } from '../../../base/names.ts'
import { type KeyValue, type Operation, put, remove } from '../client/index.ts'

/** Sees its own writes; others see them when it has been applied. Keys and values are text. */
export interface EtcdTx {
  /** Null if there is none. What was read must be unchanged at the end, or nothing is applied. */
  get(key: string): Promise<string | null>
  put(key: string, value: string): void
  delete(key: string): void
}

export class EtcdTransaction implements EtcdTx {
  readonly owner: object
  /** Of the caller, for the guard's own requests. */
  readonly signal: AbortSignal | undefined
  readonly #read: (key: string) => Promise<KeyValue | undefined>
  readonly #seen = new Map<string, { readonly value: string | null; readonly revision: number }>()
  readonly #written = new Map<string, string | null>()
  isOpen = true

  constructor(
    owner: object,
    signal: AbortSignal | undefined,
    read: (key: string) => Promise<KeyValue | undefined>,
  ) {
    this.owner = owner
    this.signal = signal
    this.#read = read
  }

  async get(key: string): Promise<string | null> {
    this.#check(key)
    const written = this.#written.get(key)
    if (written !== undefined) return written
    if (!this.#seen.has(key)) {
      const found = await this.#read(key)
      // Of two reads at once the first counts, and the end tells whether it was right.
      if (!this.#seen.has(key))
        this.#seen.set(key, { value: found?.value ?? null, revision: found?.mod_revision ?? 0 })
    }
    return this.#seen.get(key)?.value ?? null
  }

  put(key: string, value: string): void {
    this.#check(key)
    if (typeof value !== 'string')
      throw new InvalidArgumentError('value', `must be a string, not ${typeof value}.`)
    this.#written.set(key, value)
  }

  delete(key: string): void {
    this.#check(key)
    this.#written.set(key, null)
  }

  end(): void {
    this.isOpen = false
  }

  get reads(): readonly { readonly key: string; readonly revision: number }[] {
    return [...this.#seen].map(([key, { revision }]) => ({ key, revision }))
  }

  get writes(): readonly Operation[] {
    return [...this.#written].map(([key, value]) => (value === null ? remove(key) : put(key, value)))
  }

  #check(key: unknown): void {
    checkText('key', key, limits.keyBytes)
    if (!this.isOpen) throw new InvalidArgumentError('tx', 'belongs to a transaction that is over.')
  }
}
