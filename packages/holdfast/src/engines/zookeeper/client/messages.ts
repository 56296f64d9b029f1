/** ZooKeeper's requests and replies: as plain data, and on the wire. */
import type { HoldfastError } from '../../../base/errors.ts'
import { MalformedError } from '../../../kit/frames.ts'
import { judged } from './failures.ts'
import type { Reader, Writer } from './jute.ts'

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
  /** The session of an ephemeral node, 0n for others. */
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

/** What the client asks for on its own account. */
interface OwnRequests {
  auth: { readonly user: Buffer }
  ping: object
  closeSession: object
  /** Watches of another connection, and the state that they have seen. */
  setWatches: {
    readonly zxid: bigint
    readonly existing: readonly string[]
    readonly missing: readonly string[]
  }
  addWatch: { readonly path: string }
  removeWatches: { readonly path: string }
}

type AllRequests = Requests & OwnRequests
type AllResults = Results & { readonly [O in keyof OwnRequests]: object }
export type Op = keyof Requests
export type AnyOp = keyof AllRequests
export type Request<O extends AnyOp = Op> = { [K in O]: { readonly op: K } & AllRequests[K] }[O]
export type PartOp = 'create' | 'delete' | 'setData' | 'check'
export type Part = Request<PartOp>
/** `path`: of a create. `stat`: of a setData. */
export interface PartResult {
  readonly path?: string
  readonly stat?: Stat
}

export type Refusal = 'no-node' | 'node-exists' | 'bad-version' | 'not-empty' | 'session-gone'

export interface Refused {
  readonly ok: false
  readonly zxid: bigint
  readonly code: Refusal
  /** Of a `multi`: the index of the part that was refused first. */
  readonly part?: number
}

/** `zxid`: of a write its own, of a read that of the state that was read. */
export type Reply<O extends AnyOp = Op> =
  | ({ readonly ok: true; readonly zxid: bigint } & AllResults[O])
  | Refused

/** How a request is written. */
export interface Terms {
  readonly acl: 'creator' | 'open'
  /** Only for `exists` and `getData`. */
  readonly watches: boolean
}

interface Message<O extends AnyOp> {
  readonly code: number | ((request: AllRequests[O]) => number)
  write(writer: Writer, request: AllRequests[O], terms: Terms): void
  read(reader: Reader, request: AllRequests[O]): AllResults[O]
}

const ANY_VERSION = -1
const ALL_RIGHTS = 31
/** Every event of a path. */
const ANY_WATCH = 3
const PERSISTENT_RECURSIVE = 1
const CREATE = 1
const CREATE_2 = 15
const CREATE_CONTAINER = 19
const ERROR = -1
const flags: Readonly<Record<CreateMode, number>> = {
  persistent: 0,
  ephemeral: 1,
  'persistent-sequential': 2,
  'ephemeral-sequential': 3,
  container: 4,
}
/** ZooKeeper replaces `auth` by all identities of the connection. */
const acls = { creator: ['auth', ''], open: ['world', 'anyone'] } as const

const nothing = () => ({})
const path = (writer: Writer, request: { readonly path: string }) => writer.text(request.path)
const versioned = (writer: Writer, { path, version = ANY_VERSION }: Requests['delete']) =>
  writer.text(path).int(version)
const readOf = (writer: Writer, { path }: Requests['exists'], { watches }: Terms) =>
  writer.text(path).bool(watches)

const messages: { readonly [O in AnyOp]: Message<O> } = {
  create: {
    code: ({ mode }) => (mode === 'container' ? CREATE_CONTAINER : CREATE_2),
    write: (writer, { path, data = '', mode = 'persistent' }, { acl }) => {
      const [scheme, id] = acls[acl]
      writer.text(path).text(data)
      writer.int(1).int(ALL_RIGHTS).text(scheme).text(id).int(flags[mode])
    },
    read: (reader) => ({ path: reader.text(), stat: readStat(reader) }),
  },
  delete: { code: 2, write: versioned, read: nothing },
  setData: {
    code: 5,
    write: (writer, { path, data, version = ANY_VERSION }) => writer.text(path).text(data).int(version),
    read: (reader) => ({ stat: readStat(reader) }),
  },
  check: { code: 13, write: versioned, read: nothing },
  exists: { code: 3, write: readOf, read: (reader) => ({ stat: readStat(reader) }) },
  getData: { code: 4, write: readOf, read: (reader) => ({ data: reader.text(), stat: readStat(reader) }) },
  getChildren: {
    code: 12,
    write: (writer, { path }) => writer.text(path).bool(false),
    read: (reader) => ({ children: reader.texts(), stat: readStat(reader) }),
  },
  sync: { code: 9, write: path, read: nothing },
  multi: {
    code: 14,
    write: writeParts,
    read: (reader, { parts }) => ({ results: readParts(reader, parts) }),
  },
  getEphemerals: { code: 103, write: path, read: (reader) => ({ paths: reader.texts() }) },
  auth: {
    code: 100,
    write: (writer, { user }) => writer.int(0).text('digest').buffer(user),
    read: nothing,
  },
  ping: { code: 11, write: () => {}, read: nothing },
  closeSession: { code: -11, write: () => {}, read: nothing },
  setWatches: {
    code: 105,
    write: (writer, { zxid, existing, missing }) =>
      writer.long(zxid).texts(existing).texts(missing).texts([]).texts([]).texts([]),
    read: nothing,
  },
  addWatch: {
    code: 106,
    write: (writer, { path }) => writer.text(path).int(PERSISTENT_RECURSIVE),
    read: nothing,
  },
  removeWatches: { code: 18, write: (writer, { path }) => writer.text(path).int(ANY_WATCH), read: nothing },
}

const codeOf = <O extends AnyOp>({ code }: Message<O>, request: AllRequests[O]): number =>
  typeof code === 'number' ? code : code(request)

/** ZooKeeper answers these with an xid of their own. */
const ownXids: { readonly [O in AnyOp]?: number } = { auth: -4, ping: -2 }
export const EVENT_XID = -1

/** A request as a frame. Returns the xid of its answer. */
export function writeRequest<O extends AnyOp>(
  writer: Writer,
  request: Request<O>,
  nextXid: number,
  terms: Terms,
): number {
  const message: Message<O> = messages[request.op]
  const xid = ownXids[request.op] ?? nextXid
  writer.frame(() => {
    writer.int(xid).int(codeOf(message, request))
    message.write(writer, request, terms)
  })
  return xid
}

/** An error is returned if ZooKeeper did not do what was asked, and that is no answer. It throws if the bytes are no reply. */
export function readReply<O extends AnyOp>(
  backend: string,
  request: Request<O>,
  zxid: bigint,
  error: number,
  reader: Reader,
): Reply<O> | HoldfastError {
  let failure = { code: error, part: {} }
  try {
    if (error === 0) return { ok: true, zxid, ...messages[request.op].read(reader, request) }
  } catch (thrown) {
    if (!(thrown instanceof PartFailed)) throw thrown
    failure = { code: thrown.error, part: { part: thrown.part } }
  }
  const code = judged(backend, request.op, failure.code)
  return typeof code === 'string' ? { ok: false, zxid, code, ...failure.part } : code
}

/** A multi that was not applied is answered with 0, and an error for each part. */
class PartFailed extends Error {
  readonly part: number
  readonly error: number

  constructor(part: number, error: number) {
    super()
    this.part = part
    this.error = error
  }
}

function writeParts(writer: Writer, { parts }: Requests['multi'], terms: Terms): void {
  const head = (type: number, isEnd: boolean) => writer.int(type).bool(isEnd).int(-1)
  const write = <O extends PartOp>(part: Request<O>) => {
    const message: Message<O> = messages[part.op]
    head(codeOf(message, part), false)
    message.write(writer, part, terms)
  }
  for (const part of parts) write(part)
  head(-1, true)
}

function readParts(reader: Reader, parts: readonly Part[]): PartResult[] {
  const results: PartResult[] = []
  let failed: PartFailed | undefined
  for (const [index, part] of parts.entries()) {
    const [type, isEnd] = [reader.int(), reader.bool(), reader.int()]
    if (isEnd) throw new MalformedError('parts of it are missing')
    if (type === ERROR) {
      const error = reader.int()
      // The parts before it say 0, and those after it -2.
      if (error !== 0) failed ??= new PartFailed(index, error)
    } else results.push(readPart(reader, type, part))
  }
  if (reader.int() !== -1 || !reader.bool()) throw new MalformedError('it has more parts than the request')
  if (failed !== undefined) throw failed
  if (results.length < parts.length) throw new MalformedError('parts of it failed without an error')
  return results
}

/** Before 3.8.2 a part that creates is answered without a stat, so nobody gets one. */
function readPart<O extends PartOp>(reader: Reader, type: number, part: Request<O>): PartResult {
  const message: Message<O> = messages[part.op]
  if (part.op === 'create' && type === CREATE) return { path: reader.text() }
  if (type !== (part.op === 'create' ? CREATE_2 : codeOf(message, part)))
    throw new MalformedError(`a part has the type ${type}`)
  const result: PartResult = message.read(reader, part)
  return result.path === undefined ? result : { path: result.path }
}

function readStat(reader: Reader): Stat {
  return {
    czxid: reader.long(),
    mzxid: reader.long(),
    ctimeMs: Number(reader.long()),
    mtimeMs: Number(reader.long()),
    version: reader.int(),
    cversion: reader.int(),
    aversion: reader.int(),
    ephemeralOwner: reader.long(),
    dataLength: reader.int(),
    numChildren: reader.int(),
    pzxid: reader.long(),
  }
}

export interface ConnectRequest {
  readonly zxid: bigint
  readonly timeoutMs: number
  /** 0n asks for a new session. */
  readonly id: bigint
  readonly password: Buffer
}

export interface ConnectReply {
  /** 0 if the session has gone. */
  readonly timeoutMs: number
  readonly id: bigint
  readonly password: Buffer
  readonly isReadOnly: boolean
}

export function writeConnect(writer: Writer, { zxid, timeoutMs, id, password }: ConnectRequest): void {
  writer.frame(() => writer.int(0).long(zxid).int(timeoutMs).long(id).buffer(password).bool(false))
}

export function readConnect(reader: Reader): ConnectReply {
  reader.int()
  const [timeoutMs, id, password] = [reader.int(), reader.long(), reader.buffer()]
  return { timeoutMs, id, password, isReadOnly: reader.left > 0 && reader.bool() }
}

export interface NodeEvent {
  readonly kind: 'created' | 'deleted' | 'changed'
  readonly path: string
}

const eventKinds: Readonly<Record<number, NodeEvent['kind']>> = { 1: 'created', 2: 'deleted', 3: 'changed' }

/** Null: of a kind that was not asked for. */
export function readEvent(reader: Reader): NodeEvent | null {
  const kind = eventKinds[reader.int()]
  reader.int()
  const path = reader.text()
  return kind === undefined ? null : { kind, path }
}
