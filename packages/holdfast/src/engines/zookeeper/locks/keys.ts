/**
 * The nodes, and what each one stores. All nodes of a namespace lie below `<chroot>/holdfast/1/<namespace>/`:
 *
 *   s/<hash of the session's id>     a session: its record, and its number at ZooKeeper. Ephemeral
 *   a/<attempt>                      beside every claim of the attempt: no second claim is made while it is there. Its data is a mark: the
 *                                    attempt was abandoned, or released by force. Ephemeral
 *   n/<name>                         a container: ZooKeeper deletes it some time after its last child. Its children:
 *     <mode>.<weight>.<capacity>.<attempt>.<sequence>      a claim, with its record. Ephemeral
 *     data                           the data cell
 *     capacity                       a changed capacity, and from which sequence number on it does not count
 *     kept.<ms>.<sequence>           the name is kept closed for so long (hold-at-least)
 *
 * The names of the children alone say how the queue stands, so a waiter reads nothing else. The order in a queue is that of the
 * sequence numbers, which count what was ever created below `n/<name>`. When the container is created again they start at 0, and no old
 * claim is left. They are no tokens (T35, sequences that restart).
 */
import { createHash } from 'node:crypto'
import { UnsupportedError } from '../../../base/errors.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { escapeName, unescapeName } from '../../../base/names.ts'
import { BatchTokens } from '../../../kit/batch-tokens.ts'
import type { AcquireRequest, Mode } from '../../../spi.ts'

/** A claim as far as its path tells. */
export interface ClaimPath {
  readonly key: string
  readonly name: string
  readonly mode: Mode
  readonly weight: number
  readonly capacity: number
  readonly attempt: string
  readonly id: string
  readonly order: bigint
}

export interface KeptPath {
  readonly key: string
  readonly keepForMs: number
  readonly order: bigint
}

const CLAIM = /^(exclusive|shared|permits)\.(\d+)\.(\d+)\.(.+)\.(\d{10})$/
const KEPT = /^kept\.(\d+)\.(\d{10})$/

export class Keys {
  /** Written by reads, which have to be newer than whatever a deposed leader still answers. */
  readonly root: string
  readonly sessions: string
  readonly attempts: string
  readonly names: string

  constructor(chroot: string, namespace: string) {
    this.root = `${chroot}/holdfast/1/${escapeName(namespace)}`
    this.sessions = `${this.root}/s`
    this.attempts = `${this.root}/a`
    this.names = `${this.root}/n`
  }

  /** The id itself is a secret. */
  session(id: string): string {
    return `${this.sessions}/${createHash('sha256').update(id).digest('base64url')}`
  }

  attempt(attempt: string): string {
    return `${this.attempts}/${attempt}`
  }

  name(name: string): string {
    return `${this.names}/${escapeName(name)}`
  }

  of(name: string, child: string): string {
    return `${this.name(name)}/${child}`
  }

  /** ZooKeeper appends the sequence number. */
  claim({ name, mode, weight, capacity, attempt }: AcquireRequest): string {
    return this.of(name, `${mode}.${weight}.${capacity}.${attempt}.`)
  }

  /** The name and the child of a path below `n/`; null for every other path. */
  parse(path: string): { readonly name: string; readonly child: string } | null {
    const [escaped, child = ''] = path.startsWith(`${this.names}/`)
      ? path.slice(this.names.length + 1).split('/')
      : []
    return escaped === undefined ? null : { name: unescapeName(escaped), child }
  }

  /** Null: it is the path of something else. */
  parseClaim(path: string): ClaimPath | null {
    const parsed = this.parse(path)
    return parsed === null ? null : claimOf(path, parsed.name, parsed.child)
  }

  /** The claims among the children of a name. */
  claimsIn(name: string, children: readonly string[]): ClaimPath[] {
    return children
      .map((child) => claimOf(this.of(name, child), name, child))
      .filter((claim) => claim !== null)
  }

  keptIn(name: string, children: readonly string[]): KeptPath[] {
    return children.flatMap((child) => {
      const [, ms, sequence] = KEPT.exec(child) ?? []
      if (ms === undefined || sequence === undefined) return []
      return [{ key: this.of(name, child), keepForMs: Number(ms), order: BigInt(sequence) }]
    })
  }
}

function claimOf(key: string, name: string, child: string): ClaimPath | null {
  const [, mode, weight, capacity, attempt, sequence] = CLAIM.exec(child) ?? []
  if (attempt === undefined || sequence === undefined) return null
  return {
    key,
    name,
    mode: mode as Mode,
    weight: Number(weight),
    capacity: Number(capacity),
    attempt,
    id: publicIdOf(attempt),
    order: BigInt(sequence),
  }
}

/**
 * ZooKeeper counts the children of a node in 32 bits with a sign. The count does not wrap: it stays at its end, and all later claims would
 * have the same number. So below this number a name goes on, and from there it starts anew (`ZooKeeperClaims.#startAnew`).
 */
export const LAST_SEQUENCE = 2n ** 31n - 2n ** 20n

/** 16 requests may leave in one transaction, which has one zxid. */
export const MAX_BATCH = 16
const tokens = new BatchTokens(MAX_BATCH)

/** A zxid has ZooKeeper's epoch above 32 bits of a counter; 16 bits of it fit into a token. */
const MAX_ZXID = 2n ** 48n

/** The token of the write that grants: its zxid, and its position in the transaction. */
export function tokenOf(zxid: bigint, position: number): bigint {
  if (zxid >= MAX_ZXID)
    throw new UnsupportedError(
      'ZooKeeper has had 65,536 leaders or more, and its transaction ids no longer fit into tokens. Move to a new ensemble, and raise the epoch.',
    )
  return tokens.token(zxid, position)
}
