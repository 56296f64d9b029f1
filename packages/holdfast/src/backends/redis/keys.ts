/**
 * How names become keys. The name stands in braces, so that its slot in a Cluster is its own whatever the client's key
 * prefix adds in front, and everything else about it (the same key with a suffix) lies in the same slot.
 */

import { limits } from '../../base/defaults.ts'
import { InvalidArgumentError, quote } from '../../base/errors.ts'
import { escapeBraces, escapeGlob, hashTagOf, unescapeBraces } from '../../clients/redis/index.ts'

export interface KeyOptions {
  readonly namespace: string
  readonly isCluster: boolean
  /** The user's own way from a name to its lock key. */
  readonly key?: (name: string) => string
}

export class Keys {
  readonly #prefix: string
  readonly #isCluster: boolean
  readonly #key: ((name: string) => string) | undefined

  constructor({ namespace, isCluster, key }: KeyOptions) {
    this.#prefix = `holdfast:${escapeBraces(namespace)}:`
    this.#isCluster = isCluster
    this.#key = key
  }

  /** Whether names can be found again from their keys. */
  get areOurs(): boolean {
    return this.#key === undefined
  }

  lock(name: string): string {
    return this.#key === undefined
      ? `${this.#prefix}{${escapeBraces(name)}}`
      : this.#checked(name, this.#chosen(this.#key, name))
  }

  session(id: string): string {
    return `${this.#prefix}session:${id}`
  }

  /** The log for watchers, and what belongs to it; on a Cluster a channel. */
  get watch(): string {
    return `${this.#prefix}watch`
  }

  /** Where grants are pushed to: a channel whose name cannot be guessed. It stands between bars in what is stored of a waiter. */
  channel(id: string): string {
    return `${this.#prefix.replaceAll('|', '%7c')}grants:${id}`
  }

  /** A pattern for SCAN that finds the keys of all sessions. */
  sessionPattern(clientPrefix: string): string {
    return `${escapeGlob(clientPrefix + this.session(''))}*`
  }

  /** The id of the session that a key (without the client's prefix) is; null if it is none. */
  sessionOf(key: string): string | null {
    const start = this.session('')
    return key.startsWith(start) ? key.slice(start.length) : null
  }

  /** A pattern for SCAN that finds every key of every name that starts so, and some others besides. */
  pattern(clientPrefix: string, namePrefix: string): string {
    return `${escapeGlob(`${clientPrefix}${this.#prefix}{${escapeBraces(namePrefix)}`)}*`
  }

  /**
   * The name that is in use because of this key (given without the client's prefix); null if it is not ours. The other
   * keys of a name say nothing: holders of several have a lock key too, and marks and last tokens outlive the use.
   */
  nameOf(key: string): string | null {
    if (!key.startsWith(`${this.#prefix}{`)) return null
    const end = key.indexOf('}')
    const isInUse = end !== -1 && (end === key.length - 1 || key.slice(end) === '}:s')
    return isInUse ? unescapeBraces(key.slice(this.#prefix.length + 1, end)) : null
  }

  #chosen(key: (name: string) => string, name: string): unknown {
    try {
      return key(name)
    } catch (cause) {
      throw new InvalidArgumentError(
        'key',
        `must return a key for every name; it threw for ${quote(name)}.`,
        {
          cause,
        },
      )
    }
  }

  #checked(name: string, key: unknown): string {
    if (typeof key !== 'string' || key === '' || Buffer.byteLength(key) > limits.keyBytes)
      throw new InvalidArgumentError(
        'key',
        `must return a key of 1 to ${limits.keyBytes} bytes for every name; it did not for ${quote(name)}.`,
      )
    if (reserved.test(key))
      throw new InvalidArgumentError(
        'key',
        `must not return keys that end with :s, :q, :h or :t or contain :x:, under which Holdfast keeps more about another key; it returned ${quote(key)}.`,
      )
    if (this.#isCluster && hashTagOf(key) === null)
      throw new InvalidArgumentError(
        'key',
        `must return a key with a hash tag on a Cluster, such as {${name}}, so that what belongs to the name lies in one slot; it returned ${quote(key)}.`,
      )
    return key
  }
}

const reserved = /:[sqht]$|:x:/

/** The mark of the tokens: one for the database, so that all namespaces of an issuer share its order. */
export const TOKEN_KEY = 'holdfast:token'
