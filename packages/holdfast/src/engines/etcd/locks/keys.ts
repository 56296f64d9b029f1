/**
 * The keys, and what each one stores. All keys of a namespace lie below `holdfast/1/<namespace>/`:
 *
 *   s/<lease>                              a session, on its lease
 *   m/<lease>/<attempt>                    a mark on the session's lease: the attempt was abandoned, or released by force
 *   n/<name>␀exclusive/<lease>/<slot>      a claim; also `permits` and `shared`. For slots see slots.ts
 *   n/<name>␀kept/0/<slot>                 the name is kept closed (hold-at-least), on a lease of its own
 *   n/<name>␀capacity/<lease>              a changed capacity, on the lease of every session that had claims
 *   n/<name>␀data                          the data cell, which has no lease
 *
 * A name ends with a zero byte, which no name contains, so keys are in the order of the names. Claims of one mode lie together, and
 * all that can stand in a claim's way lies from `exclusive` to `shared`, so one comparison of a range asks "nothing older". The order in
 * a queue is that of create revisions.
 */
import { escapeName } from '../../../base/names.ts'
import { BatchTokens } from '../../../kit/batch-tokens.ts'
import type { Mode } from '../../../spi.ts'
import { leaseIdOf, prefixed, type Range } from '../client/index.ts'

export type Part = Mode | 'kept' | 'capacity'

/** A key that was found. */
export interface ParsedKey {
  readonly kind: 's' | 'm' | 'data' | Part
  /** The mode of a claim. */
  readonly mode: Mode | undefined
  readonly name: string
  readonly lease: number
  /** A mark's attempt, or a claim's slot. */
  readonly id: string
}

export class Keys {
  readonly all: Range
  readonly sessions: Range
  readonly #root: string

  constructor(namespace: string) {
    this.#root = `holdfast/1/${escapeName(namespace)}/`
    this.all = prefixed(this.#root)
    this.sessions = prefixed(`${this.#root}s/`)
  }

  session(lease: number): string {
    return `${this.#root}s/${lease.toString(16)}`
  }

  mark(lease: number, attempt: string): string {
    return `${this.#root}m/${lease.toString(16)}/${attempt}`
  }

  of(name: string, part: Part, lease: number, slot?: string): string {
    const key = `${this.#root}n/${name}\0${part}/${lease.toString(16)}`
    return slot === undefined ? key : `${key}/${slot}`
  }

  data(name: string): string {
    return `${this.#root}n/${name}\0data`
  }

  /** Everything of a name. */
  name(name: string): Range {
    return { key: `${this.#root}n/${name}\0`, range_end: `${this.#root}n/${name}\x01` }
  }

  /** The claims of one session. */
  claims(name: string, mode: Mode, lease: number): Range {
    return prefixed(this.of(name, mode, lease, ''))
  }

  /** From one part to another, in the order of their names. */
  part(name: string, from: Part, to: Part = from): Range {
    const start = `${this.#root}n/${name}\0`
    return { key: `${start}${from}/`, range_end: `${start}${to}0` }
  }

  /** Names that begin with `prefix`, from the one after `after`. */
  names(prefix: string, after?: string): Range {
    const range = prefixed(`${this.#root}n/${prefix}`)
    const from = `${this.#root}n/${after ?? ''}\x01`
    return Buffer.compare(Buffer.from(from), Buffer.from(range.key)) > 0 ? { ...range, key: from } : range
  }

  /** Null for what is not ours. */
  parse(key: string): ParsedKey | null {
    const parsed = key.startsWith(this.#root) ? PATH.exec(key.slice(this.#root.length)) : null
    if (parsed === null) return null
    const { top, name = '', part, lease = '', id = '' } = parsed.groups ?? {}
    const kind = (part ?? top) as ParsedKey['kind']
    const mode = modes.find((each) => each === kind)
    return { kind, mode, name, lease: Number.parseInt(lease, 16) || 0, id }
  }
}

const PATH = /^(?:n\/(?<name>[^\0]*)\0(?<part>[a-z]+)|(?<top>[ms]))(?:\/(?<lease>[^/]+)(?:\/(?<id>.+))?)?$/

/** Follows from the session's id, so that a repeated opening finds the same lease. */
export function leaseOf(namespace: string, sessionId: string): number {
  return leaseIdOf(`${namespace}\0${sessionId}`)
}

/** 32 requests may leave in one transaction. A token also says the mode, from which a holder finds its key. */
export const MAX_BATCH = 32
export const modes: readonly Mode[] = ['exclusive', 'shared', 'permits']
const tokens = new BatchTokens(MAX_BATCH * 4)

export function tokenOf(revision: number, index: number, mode: Mode): bigint {
  return tokens.token(revision, index * 4 + modes.indexOf(mode))
}

export interface GrantParts {
  readonly revision: number
  readonly mode: Mode
}

/** Null if it cannot be a grant of this backend. */
export function partsOfGrant(grantId: string): GrantParts | null {
  const parsed = tokens.parse(grantId)
  const mode = modes[(parsed?.position ?? 3) & 3]
  return parsed === null || mode === undefined ? null : { revision: parsed.version, mode }
}
