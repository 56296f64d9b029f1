/**
 * The keys, and what each one stores. All keys of a namespace lie below `holdfast/1/<namespace>/`. All but the data cell and the id are
 * locked by a session of Consul, and go with it:
 *
 *   id                        names the issuer of the tokens, if the user does not
 *   s/<hash>                  a session: the hash of the id that core has chosen
 *   a/<session>/<attempt>     with every claim: its name; or a mark: the attempt was abandoned, or released by force. The first eight
 *                             letters name the session here; which one it is, its lock says
 *   n/<name>/c/<attempt>      a claim
 *   n/<name>/capacity/<session>   a changed capacity, for every session that had claims
 *   n/<name>/kept/<attempt>   the name is kept closed (hold-at-least), for a session of its own
 *   n/<name>/delay/<attempt>  beside the claim of a holder with a lock-delay, for a second session. It stays when its session ends
 *   n/<name>/operator         an operator changes the name: until it is deleted nothing is granted
 *   n/<name>/data             the data cell
 *
 * The order in a queue is that of the indexes with which claims were created, and of their places in one transaction.
 */
import { createHash } from 'node:crypto'
import { escapeName, unescapeName } from '../../../base/names.ts'
import { BatchTokens } from '../../../kit/batch-tokens.ts'

export type Part = 'c' | 'capacity' | 'kept' | 'delay' | 'operator' | 'data'

/** A key that was found. `id`: of the session or attempt. */
export interface ParsedKey {
  readonly kind: 'id' | 's' | 'a' | Part
  readonly id: string
}

export class Keys {
  readonly root: string
  readonly names: string
  readonly sessions: string

  constructor(namespace: string) {
    this.root = `holdfast/1/${escapeName(namespace)}/`
    this.names = `${this.root}n/`
    this.sessions = `${this.root}s/`
  }

  session(id: string): string {
    return `${this.sessions}${createHash('sha256').update(id).digest('base64url')}`
  }

  /** The end of an attempt's key may be left out, for all of them. */
  attempt(session: string, attempt = ''): string {
    return `${this.root}a/${session.slice(0, 8)}/${attempt}`
  }

  /** Everything of a name. */
  name(name: string): string {
    return `${this.names}${escapeName(name)}/`
  }

  of(name: string, part: Part, id?: string): string {
    return `${this.name(name)}${part}${id === undefined ? '' : `/${id}`}`
  }

  /** That of the name to which a key belongs. */
  groupOf(key: string): string {
    return key.slice(0, key.indexOf('/', this.names.length) + 1)
  }

  /** Of a key below `names`: the name of the lock. */
  nameOf(key: string): string {
    return unescapeName(key.slice(this.names.length, this.groupOf(key).length - 1))
  }

  /** The name to which a group of keys below `names` belongs; undefined if another program has written the group. */
  nameOfGroup(group: string): string | undefined {
    try {
      const name = this.nameOf(group)
      return name !== '' && this.name(name) === group ? name : undefined
    } catch {
      // Not an escape of ours, such as `50%`.
      return undefined
    }
  }

  parse(key: string): ParsedKey {
    const [top = '', , part = '', id = ''] = key.slice(this.root.length).split('/')
    return top === 'n' ? { kind: part as Part, id } : { kind: top as ParsedKey['kind'], id: part }
  }
}

/** 16 statements leave in one transaction, of at most four operations each. */
export const MAX_BATCH = 16
export const tokens = new BatchTokens(64)

/** The order of a claim is the index of its creation and its place in that transaction, as in a token. */
export const indexOf = (order: bigint): bigint => order / 64n
export const placeIn = (order: bigint): number => Number(order % 64n)
