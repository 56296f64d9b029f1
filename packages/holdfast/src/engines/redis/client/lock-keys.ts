/**
 * How names become keys. The name stands in braces, so that its slot in a Cluster is its own whatever the client's key
 * prefix adds in front, and everything else about it (the same key with a suffix) lies in the same slot.
 */
import { limits } from '../../../base/defaults.ts'
import { InvalidArgumentError, quote } from '../../../base/errors.ts'
import { escapeBraces, escapeGlob, unescapeBraces } from './key-text.ts'
import type { ScanRequest } from './scan.ts'

export class LockKeys {
  protected readonly prefix: string
  readonly #key: ((name: string) => string) | undefined

  /** `key`: the user's own way from a name to its lock key. */
  constructor(namespace: string, key?: (name: string) => string) {
    this.prefix = `holdfast:${escapeBraces(namespace)}:`
    this.#key = key
  }

  /** Whether names can be found again from their keys. */
  get areOurs(): boolean {
    return this.#key === undefined
  }

  lock(name: string): string {
    return this.#key === undefined ? `${this.prefix}{${escapeBraces(name)}}` : this.#chosen(this.#key, name)
  }

  session(id: string): string {
    return `${this.prefix}session:${id}`
  }

  /**
   * The name that is in use because of this key (given without the client's prefix); null if it is not ours. The other
   * keys of a name say nothing: holders of several have a lock key too, and marks and last tokens outlive the use.
   */
  nameOf(key: string): string | null {
    if (!key.startsWith(`${this.prefix}{`)) return null
    const end = key.indexOf('}')
    const isInUse = end !== -1 && (end === key.length - 1 || key.slice(end) === '}:s')
    return isInUse ? unescapeBraces(key.slice(this.prefix.length + 1, end)) : null
  }

  /** Finds every name that starts so, and some that are not in use. */
  scan(clientPrefix: string, namePrefix: string): Pick<ScanRequest, 'pattern' | 'itemOf'> {
    const start = `${clientPrefix}${this.prefix}{${escapeBraces(namePrefix)}`
    const itemOf = (key: string) => {
      const name = this.nameOf(key.slice(clientPrefix.length))
      return name?.startsWith(namePrefix) ? name : null
    }
    return { pattern: `${escapeGlob(start)}*`, itemOf }
  }

  /** Further rules for a key of the user's: throws if it breaks one. */
  protected checkChosen(_name: string, _key: string): void {}

  #chosen(choose: (name: string) => unknown, name: string): string {
    let key: unknown
    try {
      key = choose(name)
    } catch (cause) {
      const rule = `must return a key for every name; it threw for ${quote(name)}.`
      throw new InvalidArgumentError('key', rule, { cause })
    }
    if (typeof key !== 'string' || key === '' || Buffer.byteLength(key) > limits.keyBytes)
      throw new InvalidArgumentError(
        'key',
        `must return a key of 1 to ${limits.keyBytes} bytes for every name; it did not for ${quote(name)}.`,
      )
    this.checkChosen(name, key)
    return key
  }
}
