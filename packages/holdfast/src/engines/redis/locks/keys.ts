/** The keys of a namespace beside those of its names. */

import { InvalidArgumentError, quote } from '../../../base/errors.ts'
import { escapeGlob, hashTagOf, LockKeys, type ScanRequest } from '../client/index.ts'

export interface KeyOptions {
  readonly namespace: string
  readonly isCluster: boolean
  /** The user's own way from a name to its lock key. */
  readonly key?: (name: string) => string
}

export class Keys extends LockKeys {
  readonly #isCluster: boolean

  constructor({ namespace, isCluster, key }: KeyOptions) {
    super(namespace, key)
    this.#isCluster = isCluster
  }

  /** The log for watchers, and what belongs to it. */
  get watch(): string {
    return `${this.prefix}watch`
  }

  /** Where grants are pushed to: a channel whose name cannot be guessed. It stands between bars in what is stored of a waiter. */
  channel(id: string): string {
    return `${this.prefix.replaceAll('|', '%7c')}grants:${id}`
  }

  /** Finds the ids of all sessions. */
  scanSessions(clientPrefix: string): Pick<ScanRequest, 'pattern' | 'itemOf'> {
    const start = clientPrefix + this.session('')
    const itemOf = (key: string) => (key.startsWith(start) ? key.slice(start.length) : null)
    return { pattern: `${escapeGlob(start)}*`, itemOf }
  }

  protected override checkChosen(name: string, key: string): void {
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
  }
}

const reserved = /:[sqht]$|:x:/

/** The mark of the tokens: one for the database, so that all namespaces of an issuer share its order. */
export const TOKEN_KEY = 'holdfast:token'
