/**
 * What is stored where. All keys of a namespace lie below `holdfast/1/<namespace>/`:
 *
 *   s/<lease>                          a session, on its lease
 *   m/<lease>/<attempt>                a mark on the session's lease: the attempt was abandoned, or released by force
 *   n/<name>␀p/<lease>/<attempt>       a claim of permits
 *   n/<name>␀r/<lease>/<attempt>       a shared claim ("reader")
 *   n/<name>␀w/<lease>/<attempt>       an exclusive claim ("writer")
 *   n/<name>␀k/<attempt>               the name is kept closed (hold-at-least), on a lease of its own
 *   n/<name>␀c/<lease>                 a changed capacity, on the lease of every session that had claims
 *   n/<name>␀d                         the data cell, which has no lease
 *
 * A name ends with a zero byte, which no name contains, so keys are in the order of the names. Claims of one kind lie together, so
 * that one comparison of a range asks "nothing older". The order in a queue is that of create revisions.
 */
import { createHash } from 'node:crypto'
import { escapeName } from '../../base/names.ts'
import { prefixed, type Range } from '../../clients/etcd/index.ts'
import type { Mode } from '../../spi.ts'

/** The kinds of claims. Their order is part of every token. */
export const kinds = ['w', 'r', 'p'] as const
export type Kind = (typeof kinds)[number]

const kindByMode: Record<Mode, Kind> = { exclusive: 'w', shared: 'r', permits: 'p' }
const modeByKind: Record<Kind, Mode> = { w: 'exclusive', r: 'shared', p: 'permits' }

export const kindOf = (mode: Mode): Kind => kindByMode[mode]
export const modeOf = (kind: Kind): Mode => modeByKind[kind]
export const isClaim = (kind: string): kind is Kind => kind in modeByKind

/** A key that was found. `kind`: the letters above. */
export interface ParsedKey {
  readonly kind: 's' | 'm' | 'k' | 'c' | 'd' | Kind
  readonly name: string
  readonly lease: number
  readonly attempt: string
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

  claim(kind: Kind, name: string, lease: number, attempt: string): string {
    return `${this.#root}n/${name}\0${kind}/${lease.toString(16)}/${attempt}`
  }

  closed(name: string, attempt: string): string {
    return `${this.#root}n/${name}\0k/${attempt}`
  }

  capacity(name: string, lease: number): string {
    return `${this.#root}n/${name}\0c/${lease.toString(16)}`
  }

  data(name: string): string {
    return `${this.#root}n/${name}\0d`
  }

  /** Everything of a name. */
  name(name: string): Range {
    return { key: `${this.#root}n/${name}\0`, range_end: `${this.#root}n/${name}\x01` }
  }

  /** From one kind to another, by the letters above: `k` to `w` are all that can stand in the way of a claim. */
  part(name: string, from: 'c' | 'k' | Kind, to: 'c' | 'k' | Kind = from): Range {
    const start = `${this.#root}n/${name}\0`
    return { key: `${start}${from}/`, range_end: `${start}${to}0` }
  }

  /** Names that begin with `prefix`, from the one after `after`. */
  names(prefix: string, after?: string): Range {
    const { key, range_end } = prefixed(`${this.#root}n/${prefix}`)
    const from = after === undefined ? key : `${this.#root}n/${after}\x01`
    return { key: Buffer.compare(Buffer.from(from), Buffer.from(key)) > 0 ? from : key, range_end }
  }

  /** Null for what is not ours. */
  parse(key: string): ParsedKey | null {
    const path = key.slice(this.#root.length)
    const parsed = PATH.exec(path)
    if (parsed === null || !key.startsWith(this.#root)) return null
    const { top, name = '', kind, id = '', attempt = '' } = parsed.groups ?? {}
    if (kind === 'k') return { kind, name, lease: 0, attempt: id }
    return { kind: (kind ?? top) as ParsedKey['kind'], name, lease: Number.parseInt(id, 16) || 0, attempt }
  }
}

const PATH =
  /^(?:n\/(?<name>[^\0]*)\0(?<kind>[cdkprw])|(?<top>[ms]))(?:\/(?<id>[^/]+)(?:\/(?<attempt>.+))?)?$/

/** Follows from the session's id, so that a repeated opening finds the same lease. At most 52 bits, and never 0. */
export function leaseOf(namespace: string, sessionId: string): number {
  const hash = createHash('sha256').update(`${namespace}\0${sessionId}`).digest()
  return hash.readUIntBE(0, 6) * 16 + ((hash[6] ?? 0) & 15) + 1
}

/**
 * All writes of one transaction share a revision, so a token has seven bits more: five for the position in a batch, and two for
 * the kind of the claim, from which a holder finds its key.
 */
export const MAX_BATCH = 32

export function tokenOf(revision: number, index: number, kind: Kind): bigint {
  return BigInt(revision) * 128n + BigInt(index * 4 + kinds.indexOf(kind))
}

export interface GrantParts {
  readonly revision: number
  readonly kind: Kind
}

/** Null if it cannot be a grant of this backend. */
export function partsOfToken(token: bigint): GrantParts | null {
  const kind = kinds[Number(token & 3n)]
  const revision = Number(token >> 7n)
  return kind === undefined || revision <= 0 ? null : { revision, kind }
}

export function partsOfGrant(grantId: string): GrantParts | null {
  return /^\d{1,19}$/.test(grantId) ? partsOfToken(BigInt(grantId)) : null
}
