/** ZooKeeper's requests and replies as plain data. */

export interface Stat {
  /** The transaction that created the node, and the last that wrote its data. */
  readonly czxid: bigint
  readonly mzxid: bigint
  /** On the leader's wall clock. */
  readonly ctimeMs: number
  readonly mtimeMs: number
  readonly version: number
  /** Counts the creates and deletes of children. */
  readonly cversion: number
  readonly aversion: number
  /** The session of an ephemeral node, 0n for others; a container has -2^63. */
  readonly ephemeralOwner: bigint
  readonly dataLength: number
  readonly numChildren: number
  /** The last create or delete of a child. */
  readonly pzxid: bigint
}

export type CreateMode =
  | 'persistent'
  | 'ephemeral'
  | 'persistent-sequential'
  | 'ephemeral-sequential'
  | 'container'

/** Paths are absolute. Without a version, any version will do. Every node gets the ACL of the client's options. */
export interface Requests {
  create: { readonly path: string; readonly data?: string; readonly mode?: CreateMode }
  delete: { readonly path: string; readonly version?: number }
  setData: { readonly path: string; readonly data: string; readonly version?: number }
  /** Only as a part of `multi`. */
  check: { readonly path: string; readonly version: number }
  exists: { readonly path: string }
  getData: { readonly path: string }
  getChildren: { readonly path: string }
  /** What is read on the same connection after it is at least as new as the leader's state when it was answered. */
  sync: { readonly path: string }
  /** All parts, or none. */
  multi: { readonly parts: readonly Part[] }
  /** The ephemeral nodes of this session below the path. */
  getEphemerals: { readonly path: string }
}

export interface Results {
  /** The path has the sequence number, if the mode has one. */
  create: { readonly path: string; readonly stat: Stat }
  delete: object
  setData: { readonly stat: Stat }
  check: object
  exists: { readonly stat: Stat }
  getData: { readonly data: string; readonly stat: Stat }
  getChildren: { readonly children: readonly string[]; readonly stat: Stat }
  sync: object
  /** In the order of the parts. */
  multi: { readonly results: readonly PartResult[] }
  getEphemerals: { readonly paths: readonly string[] }
}

export type Op = keyof Requests
export type Request<O extends Op = Op> = { [K in O]: { readonly op: K } & Requests[K] }[O]
export type PartOp = 'create' | 'delete' | 'setData' | 'check'
export type Part = Request<PartOp>
/** `path`: of a create. `stat`: of a create or a setData. */
export interface PartResult {
  readonly path?: string
  readonly stat?: Stat
}

export type Refusal =
  | 'no-node'
  | 'node-exists'
  | 'bad-version'
  | 'not-empty'
  | 'no-children-for-ephemerals'
  | 'session-gone'

export interface Refused {
  readonly ok: false
  readonly zxid: bigint
  readonly code: Refusal
  /** Of a `multi`: the index of the part that was refused first. */
  readonly part?: number
}

/** `zxid`: of a write its own, of a read that of the state that was read. */
export type Reply<O extends Op = Op> = ({ readonly ok: true; readonly zxid: bigint } & Results[O]) | Refused
