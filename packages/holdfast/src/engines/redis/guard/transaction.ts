/**
 * Redis has no transaction in which a program can read, think and write. This is one all the same: reads are made at once
 * and noted, writes are gathered, and a single script at the end applies them if everything that was read is still so.
 *
 *   open ──body returned──▶ applied, or nothing was (CONFLICT: what was read has been written meanwhile)
 *   open ──body threw──▶ nothing was applied
 */
import { InvalidArgumentError } from '../../../base/errors.ts'
import { checkInteger } from '../../../base/options.ts'

/** Sees its own writes; others see them when it has been applied. */
export interface RedisTx {
  /** Null if there is none. Whatever is read must be unchanged at the end, or nothing is applied. */
  get(key: string): Promise<string | null>
  /** Replaces what was there, and its time to live. */
  set(key: string, value: string, options?: { readonly ttlMs?: number }): void
  /** Answers with the new value. A time to live is kept. */
  increment(key: string, by?: number | bigint): Promise<bigint>
  delete(key: string): void
}

/** `keep`: the time to live stays. */
interface Write {
  readonly word: 'delete' | 'set' | 'keep'
  /** Null after `delete`. */
  readonly text: string | null
  readonly ttlMs: number | null
}

export interface TransactionHost {
  checkKey(key: unknown): string
  read(key: string): Promise<string | null>
}

export class RedisTransaction implements RedisTx {
  readonly host: TransactionHost
  readonly #read = new Map<string, string | null>()
  readonly #written = new Map<string, Write>()
  #isOpen = true

  constructor(host: TransactionHost) {
    this.host = host
  }

  async get(key: string): Promise<string | null> {
    this.#mustBeOpen()
    this.host.checkKey(key)
    const write = this.#written.get(key)
    if (write !== undefined) return write.text
    const known = this.#read.get(key)
    if (known !== undefined) return known
    const text = await this.host.read(key)
    // Two reads of one key at once may have seen two values: the first counts, and the end tells whether it was right.
    const seen = this.#read.get(key)
    if (seen !== undefined) return seen
    this.#read.set(key, text)
    return text
  }

  set(key: string, value: string, options: { readonly ttlMs?: number } = {}): void {
    this.#mustBeOpen()
    this.host.checkKey(key)
    const ttlMs = checkTtl(options.ttlMs)
    this.#written.set(key, { word: 'set', text: checkValue(value), ttlMs })
  }

  async increment(key: string, by: number | bigint = 1): Promise<bigint> {
    const amount = checkAmount(by)
    const before = (await this.get(key)) ?? '0'
    if (!/^-?\d{1,19}$/.test(before))
      throw new InvalidArgumentError('key', 'must hold a whole number, or nothing, to be incremented.')
    const after = BigInt(before) + amount
    // A key that was set in this transaction keeps the time to live that it was given.
    const { word, ttlMs } = this.#written.get(key) ?? { word: 'keep', ttlMs: null }
    this.#written.set(key, { word: word === 'delete' ? 'set' : word, text: String(after), ttlMs })
    return after
  }

  delete(key: string): void {
    this.#mustBeOpen()
    this.host.checkKey(key)
    this.#written.set(key, { word: 'delete', text: null, ttlMs: null })
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  end(): void {
    this.#isOpen = false
  }

  /** For `transactionScript`. */
  get script(): { readonly keys: readonly string[]; readonly args: readonly string[] } {
    const keys = [...this.#read.keys(), ...this.#written.keys()]
    const args = [String(this.#read.size)]
    for (const text of this.#read.values()) args.push(...(text === null ? ['none', ''] : ['text', text]))
    for (const { word, text, ttlMs } of this.#written.values())
      args.push(word, text ?? '', ttlMs === null ? '' : String(ttlMs))
    return { keys, args }
  }

  #mustBeOpen(): void {
    if (!this.#isOpen) throw new InvalidArgumentError('tx', 'belongs to a transaction that is over.')
  }
}

export function checkValue(value: unknown): string {
  if (typeof value !== 'string')
    throw new InvalidArgumentError('value', `must be a string, not ${typeof value}.`)
  return value
}

export function checkTtl(ttlMs: unknown): number | null {
  return ttlMs === undefined ? null : checkInteger('ttlMs', ttlMs, { min: 1 })
}

export function checkAmount(by: unknown): bigint {
  if (typeof by === 'bigint') return by
  return BigInt(checkInteger('by', by, { min: Number.MIN_SAFE_INTEGER }))
}
