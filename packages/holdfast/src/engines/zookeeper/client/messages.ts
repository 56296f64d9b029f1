/** ZooKeeper's requests and replies: as plain data, and on the wire. */
import type { HoldfastError } from '../../../base/errors.ts'
import { MalformedError } from '../../../kit/frames.ts'
import { judged } from './failures.ts'
import { type Field, frame, type Reader } from './jute.ts'
import { passwordOf } from './password.ts'

export interface Stat {
  /** The transaction that created the node, and the last that wrote its data. */
  readonly czxid: bigint
  readonly mzxid: bigint
  /** On the leader's wall clock. */
  readonly ctimeMs: number
  readonly mtimeMs: number
  /** Of the data, and of the list of children. */
  readonly version: number
  readonly cversion: number
  /** The session of an ephemeral node, 0n for others. */
  readonly ephemeralOwner: bigint
  readonly numChildren: number
}

export type CreateMode =
  | 'persistent'
  | 'ephemeral'
  | 'persistent-sequential'
  | 'ephemeral-sequential'
  | 'container'

interface Path {
  readonly path: string
}
/** Without a version, any version will do. */
interface Versioned extends Path {
  readonly version?: number
}

/** Each request, and its result. Paths are absolute. Every node gets the ACL of the client's options. */
interface Operations {
  /** The path of the result has the sequence number, if the mode has one. */
  create: [Path & { readonly data?: string; readonly mode?: CreateMode }, Path & { readonly stat: Stat }]
  delete: [Versioned, object]
  setData: [Versioned & { readonly data: string }, { readonly stat: Stat }]
  /** Only as a part of `multi`. */
  check: [Path & { readonly version: number }, object]
  exists: [Path, { readonly stat: Stat }]
  getData: [Path, { readonly data: string; readonly stat: Stat }]
  getChildren: [Path, { readonly children: readonly string[]; readonly stat: Stat }]
  /** All parts, or none. */
  multi: [{ readonly parts: readonly Part[] }, { readonly results: readonly PartResult[] }]
  /** The ephemeral nodes of this session whose path begins so. */
  getEphemerals: [Path, { readonly paths: readonly string[] }]
}

/** Requests of the client itself. */
interface OwnOperations {
  auth: [{ readonly user: Buffer }, object]
  ping: [object, object]
  closeSession: [object, object]
  /** Watches of another connection, and the state that they have seen. */
  setWatches: [{ readonly zxid: bigint; readonly existing: string[]; readonly missing: string[] }, object]
  addWatch: [Path, object]
  removeWatches: [Path, object]
}

type All = Operations & OwnOperations
type Requests = { readonly [O in keyof All]: All[O][0] }
type Results = { readonly [O in keyof All]: All[O][1] }
export type Op = keyof Operations
export type AnyOp = keyof All
export type Request<O extends AnyOp = Op> = { [K in O]: { readonly op: K } & Requests[K] }[O]
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
  | ({ readonly ok: true; readonly zxid: bigint } & Results[O])
  | Refused

/** How a request is written. */
export interface Terms {
  readonly acl: 'creator' | 'open'
  /** Of `exists` and `getData`. */
  readonly watches: boolean
}

interface Message<O extends AnyOp> {
  readonly code: number
  fields(request: Requests[O], terms: Terms): readonly Field[]
  /** `onFailed`: a part has failed, so nothing was done. */
  read(reader: Reader, request: Requests[O], onFailed: (error: number, part: number) => void): Results[O]
}

const flags = {
  persistent: 0,
  ephemeral: 1,
  'persistent-sequential': 2,
  'ephemeral-sequential': 3,
  container: 4,
}
const ALL_RIGHTS = 31
/** ZooKeeper replaces `auth` by all identities of the connection. */
const acls = { creator: ['auth', ''], open: ['world', 'anyone'] }
const [CREATE, CREATE_2, CREATE_CONTAINER] = [1, 15, 19]
const [PERSISTENT_RECURSIVE, EVERY_WATCH, ERROR] = [1, 3, -1]

const nothing = () => ({})
const stated = (reader: Reader) => ({ stat: readStat(reader) })
const versioned = ({ path, version = -1 }: Versioned) => [path, version]
const read = ({ path }: Path, { watches }: Terms) => [path, watches]

const messages: { readonly [O in AnyOp]: Message<O> } = {
  create: {
    code: CREATE_2,
    fields: ({ path, data = '', mode = 'persistent' }, { acl }) => [
      ...[path, data],
      ...[1, ALL_RIGHTS, ...acls[acl]],
      flags[mode],
    ],
    read: (reader) => ({ path: reader.text(), stat: readStat(reader) }),
  },
  delete: { code: 2, fields: versioned, read: nothing },
  setData: { code: 5, fields: ({ path, data, version = -1 }) => [path, data, version], read: stated },
  check: { code: 13, fields: versioned, read: nothing },
  exists: { code: 3, fields: read, read: stated },
  getData: { code: 4, fields: read, read: (reader) => ({ data: reader.text(), stat: readStat(reader) }) },
  getChildren: {
    code: 12,
    fields: ({ path }) => [path, false],
    read: (reader) => ({ children: reader.texts(), stat: readStat(reader) }),
  },
  multi: {
    code: 14,
    fields: ({ parts }, terms) => [...parts.flatMap((part) => partFields(part, terms)), -1, true, -1],
    read: (reader, { parts }, onFailed) => ({ results: readParts(reader, parts, onFailed) }),
  },
  getEphemerals: { code: 103, fields: ({ path }) => [path], read: (reader) => ({ paths: reader.texts() }) },
  auth: { code: 100, fields: ({ user }) => [0, 'digest', user], read: nothing },
  ping: { code: 11, fields: () => [], read: nothing },
  closeSession: { code: -11, fields: () => [], read: nothing },
  setWatches: {
    code: 105,
    fields: ({ zxid, existing, missing }) => [
      ...[zxid, existing.length, ...existing, missing.length, ...missing],
      ...[0, 0, 0],
    ],
    read: nothing,
  },
  addWatch: { code: 106, fields: ({ path }) => [path, PERSISTENT_RECURSIVE], read: nothing },
  removeWatches: { code: 18, fields: ({ path }) => [path, EVERY_WATCH], read: nothing },
}

function codeOf({ op, mode }: { readonly op: AnyOp; readonly mode?: CreateMode }): number {
  return mode === 'container' ? CREATE_CONTAINER : messages[op].code
}

/** ZooKeeper answers these with a number of their own. */
export const ownXids: { readonly [O in AnyOp]?: number } = { auth: -4, ping: -2 }
export const EVENT_XID = -1
/** Numbers below 0 have other meanings. */
export const nextXid = (xid: number): number => (xid < 2 ** 31 - 1 ? xid + 1 : 1)

/** Its xid is 0. */
export function requestFrame<O extends AnyOp>(request: Request<O>, terms: Terms): Buffer {
  return frame([0, codeOf(request), ...messages[request.op].fields(request, terms)])
}

/** An error: ZooKeeper did not do what was asked, and that is no answer. It throws if the bytes are no reply. */
export function readReply<O extends AnyOp>(
  backend: string,
  request: Request<O>,
  zxid: bigint,
  error: number,
  reader: Reader,
): Reply<O> | HoldfastError {
  let failed: { readonly error: number; readonly part?: number } = { error }
  const onFailed = (error: number, part: number) => {
    failed = { error, part }
  }
  const result = error === 0 ? messages[request.op].read(reader, request, onFailed) : null
  const { error: code, ...part } = failed
  if (result !== null && code === 0) return { ok: true, zxid, ...result }
  const refusal = judged(backend, request.op, code)
  return typeof refusal === 'string' ? { ok: false, zxid, code: refusal, ...part } : refusal
}

function partFields<O extends PartOp>(part: Request<O>, terms: Terms): readonly Field[] {
  return [codeOf(part), false, -1, ...messages[part.op].fields(part, terms)]
}

/** Of a multi that failed each part has an error: 0 before the one that failed, and -2 after it. */
function readParts(
  reader: Reader,
  parts: readonly Part[],
  onFailed: (error: number, part: number) => void,
): PartResult[] {
  const errors: number[] = []
  const results: PartResult[] = []
  for (const part of parts) {
    const [type, isEnd, error] = [reader.int(), reader.bool(), reader.int()]
    if (isEnd) throw new MalformedError('parts of it are missing')
    if (type !== ERROR) results.push(readPart(reader, type, part))
    else errors.push(error | reader.int())
  }
  if (reader.int() !== -1 || !reader.bool()) throw new MalformedError('it has more parts than the request')
  const part = errors.findIndex((error) => error !== 0)
  if (errors.length > 0 && (part < 0 || results.length > 0)) throw new MalformedError('some parts failed')
  if (part >= 0) onFailed(errors[part] ?? 0, part)
  return results
}

/** Before 3.8.2 a part that creates is answered without a stat, so nobody gets one. */
function readPart<O extends PartOp>(reader: Reader, type: number, part: Request<O>): PartResult {
  if (part.op === 'create' && type === CREATE) return { path: reader.text() }
  // Containers are no exception.
  if (type !== messages[part.op].code) throw new MalformedError(`a part has the type ${type}`)
  const result: PartResult = messages[part.op].read(reader, part, () => {})
  return result.path === undefined ? result : { path: result.path }
}

function readStat(reader: Reader): Stat {
  const [czxid, mzxid] = [reader.long(), reader.long()]
  const [ctimeMs, mtimeMs] = [Number(reader.long()), Number(reader.long())]
  const [version, cversion, _aversion] = [reader.int(), reader.int(), reader.int()]
  const [ephemeralOwner, _dataLength, numChildren] = [reader.long(), reader.int(), reader.int()]
  const _pzxid = reader.long()
  return { czxid, mzxid, ctimeMs, mtimeMs, version, cversion, ephemeralOwner, numChildren }
}

export interface ConnectReply {
  /** 0 if the session has gone. */
  readonly timeoutMs: number
  readonly id: bigint
  readonly isReadOnly: boolean
}

/** `id`: 0n asks for a new session. */
export function connectFrame(zxid: bigint, timeoutMs: number, id: bigint): Buffer {
  return frame([0, zxid, timeoutMs, id, passwordOf(id), false])
}

export function readConnect(reader: Reader): ConnectReply {
  const [_version, timeoutMs, id, _password] = [reader.int(), reader.int(), reader.long(), reader.text()]
  return { timeoutMs, id, isReadOnly: reader.left > 0 && reader.bool() }
}

export interface NodeEvent {
  readonly kind: 'created' | 'deleted' | 'changed'
  readonly path: string
}

/** Null: of a kind that was not asked for. */
export function readEvent(reader: Reader): NodeEvent | null {
  const kind = ([null, 'created', 'deleted', 'changed'] as const)[reader.int()]
  const [_state, path] = [reader.int(), reader.text()]
  return kind ? { kind, path } : null
}
