/** The messages and methods of etcd's gRPC interface that Holdfast uses (rpc.proto of etcd 3.4). */
import { Schema } from './protobuf.ts'

export interface Header {
  readonly cluster_id: string
  readonly member_id: string
  readonly revision: number
  readonly raft_term: number
}

export interface KeyValue {
  readonly key: string
  readonly create_revision: number
  readonly mod_revision: number
  readonly value: string
  readonly lease: number
}

export interface RangeRequest {
  readonly key: string
  readonly range_end?: string
  readonly limit?: number
  readonly revision?: number
  readonly sort_order?: number
  readonly sort_target?: number
  readonly keys_only?: boolean
  readonly count_only?: boolean
  readonly min_mod_revision?: number
  readonly max_mod_revision?: number
  readonly max_create_revision?: number
}

export interface RangeResponse {
  readonly header?: Header
  readonly kvs: readonly KeyValue[]
  readonly more: boolean
  readonly count: number
}

export interface PutRequest {
  readonly key: string
  readonly value: string
  readonly lease?: number
}

export interface Compare {
  readonly result?: number
  readonly target: number
  readonly key: string
  readonly create_revision?: number
  readonly mod_revision?: number
  readonly value?: string
  readonly range_end?: string
}

export interface Operation {
  readonly range?: RangeRequest
  readonly put?: PutRequest
  readonly delete?: { readonly key: string }
  readonly txn?: TxnRequest
}

export interface TxnRequest {
  readonly compare: readonly Compare[]
  readonly success: readonly Operation[]
  readonly failure: readonly Operation[]
}

export interface OperationResponse {
  readonly range?: RangeResponse
  readonly txn?: TxnResponse
}

export interface TxnResponse {
  readonly header?: Header
  readonly succeeded: boolean
  readonly responses: readonly OperationResponse[]
}

export interface WatchCreate {
  readonly key: string
  readonly range_end?: string
  readonly start_revision?: number
  readonly filters?: readonly number[]
  readonly prev_kv?: boolean
  readonly watch_id?: number
}

export interface WatchRequest {
  readonly create?: WatchCreate
  readonly cancel?: { readonly watch_id: number }
}

export interface Event {
  /** 0: put, 1: delete. */
  readonly type: number
  readonly kv: KeyValue
  readonly prev_kv?: KeyValue
}

export interface WatchResponse {
  readonly header?: Header
  readonly watch_id: number
  readonly created: boolean
  readonly canceled: boolean
  readonly compact_revision: number
  readonly cancel_reason: string
  readonly events: readonly Event[]
}

export interface Member {
  readonly id: string
  readonly name: string
  readonly client_urls: readonly string[]
  readonly is_learner: boolean
}

export interface StatusResponse {
  readonly header?: Header
  readonly version: string
  readonly db_size: number
  readonly leader: string
  readonly errors: readonly string[]
  /** Since etcd 3.6. */
  readonly db_size_quota: number
  readonly is_learner: boolean
}

const header = new Schema<Header>({
  cluster_id: [1, 'id'],
  member_id: [2, 'id'],
  revision: [3, 'int'],
  raft_term: [4, 'int'],
})
const keyValue = new Schema<KeyValue>({
  key: [1, 'text'],
  create_revision: [2, 'int'],
  mod_revision: [3, 'int'],
  value: [5, 'text'],
  lease: [6, 'int'],
})
const rangeRequest = new Schema<RangeRequest>({
  key: [1, 'text'],
  range_end: [2, 'text'],
  limit: [3, 'int'],
  revision: [4, 'int'],
  sort_order: [5, 'int'],
  sort_target: [6, 'int'],
  keys_only: [8, 'bool'],
  count_only: [9, 'bool'],
  min_mod_revision: [10, 'int'],
  max_mod_revision: [11, 'int'],
  max_create_revision: [13, 'int'],
})
const rangeResponse = new Schema<RangeResponse>({
  header: [1, header],
  kvs: [2, keyValue, 'repeated'],
  more: [3, 'bool'],
  count: [4, 'int'],
})
const compare = new Schema<Compare>({
  result: [1, 'int'],
  target: [2, 'int'],
  key: [3, 'text'],
  create_revision: [5, 'int'],
  mod_revision: [6, 'int'],
  value: [7, 'text'],
  range_end: [64, 'text'],
})

// A transaction contains operations, and an operation may be a transaction.
const operation: Schema<Operation> = new Schema({})
const operationResponse: Schema<OperationResponse> = new Schema({})
const txnRequest = new Schema<TxnRequest>({
  compare: [1, compare, 'repeated'],
  success: [2, operation, 'repeated'],
  failure: [3, operation, 'repeated'],
})
const txnResponse = new Schema<TxnResponse>({
  header: [1, header],
  succeeded: [2, 'bool'],
  responses: [3, operationResponse, 'repeated'],
})
operation.define({
  range: [1, rangeRequest],
  put: [2, new Schema<PutRequest>({ key: [1, 'text'], value: [2, 'text'], lease: [3, 'int'] })],
  delete: [3, new Schema<{ key: string }>({ key: [1, 'text'] })],
  txn: [4, txnRequest],
})
operationResponse.define({ range: [1, rangeResponse], txn: [4, txnResponse] })

const watchRequest = new Schema<WatchRequest>({
  create: [
    1,
    new Schema<WatchCreate>({
      key: [1, 'text'],
      range_end: [2, 'text'],
      start_revision: [3, 'int'],
      filters: [5, 'int', 'repeated'],
      prev_kv: [6, 'bool'],
      watch_id: [7, 'int'],
    }),
  ],
  cancel: [2, new Schema<{ watch_id: number }>({ watch_id: [1, 'int'] })],
})
const event = new Schema<Event>({ type: [1, 'int'], kv: [2, keyValue], prev_kv: [3, keyValue] })
const watchResponse = new Schema<WatchResponse>({
  header: [1, header],
  watch_id: [2, 'int'],
  created: [3, 'bool'],
  canceled: [4, 'bool'],
  compact_revision: [5, 'int'],
  cancel_reason: [6, 'text'],
  events: [11, event, 'repeated'],
})
const member = new Schema<Member>({
  id: [1, 'id'],
  name: [2, 'text'],
  client_urls: [4, 'text', 'repeated'],
  is_learner: [5, 'bool'],
})
const leaseId = new Schema<{ ID: number }>({ ID: [1, 'int'] })
const empty = new Schema<object>({})
const headerOnly = new Schema<{ header?: Header }>({ header: [1, header] })
const lease = new Schema<{ header?: Header; ID: number; TTL: number }>({
  header: [1, header],
  ID: [2, 'int'],
  TTL: [3, 'int'],
})

export interface Method<Request, Response> {
  readonly path: string
  readonly request: Schema<Request>
  readonly response: Schema<Response>
}

function method<Q, R>(path: string, request: Schema<Q>, response: Schema<R>): Method<Q, R> {
  return { path: `/etcdserverpb.${path}`, request, response }
}

export const methods = {
  range: method('KV/Range', rangeRequest, rangeResponse),
  txn: method('KV/Txn', txnRequest, txnResponse),
  leaseGrant: method(
    'Lease/LeaseGrant',
    new Schema<{ TTL: number; ID?: number }>({ TTL: [1, 'int'], ID: [2, 'int'] }),
    lease,
  ),
  leaseRevoke: method('Lease/LeaseRevoke', leaseId, headerOnly),
  /** A stream by its definition. One request, one answer, and its end are a valid use of it. */
  leaseKeepAlive: method('Lease/LeaseKeepAlive', leaseId, lease),
  leaseTimeToLive: method(
    'Lease/LeaseTimeToLive',
    new Schema<{ ID: number; keys?: boolean }>({ ID: [1, 'int'], keys: [2, 'bool'] }),
    new Schema<{ header?: Header; TTL: number; grantedTTL: number; keys: readonly string[] }>({
      header: [1, header],
      TTL: [3, 'int'],
      grantedTTL: [4, 'int'],
      keys: [5, 'text', 'repeated'],
    }),
  ),
  watch: method('Watch/Watch', watchRequest, watchResponse),
  authenticate: method(
    'Auth/Authenticate',
    new Schema<{ name: string; password: string }>({ name: [1, 'text'], password: [2, 'text'] }),
    new Schema<{ token: string }>({ token: [2, 'text'] }),
  ),
  memberList: method(
    'Cluster/MemberList',
    empty,
    new Schema<{ header?: Header; members: readonly Member[] }>({
      header: [1, header],
      members: [2, member, 'repeated'],
    }),
  ),
  status: method(
    'Maintenance/Status',
    empty,
    new Schema<StatusResponse>({
      header: [1, header],
      version: [2, 'text'],
      db_size: [3, 'int'],
      leader: [4, 'id'],
      errors: [8, 'text', 'repeated'],
      is_learner: [10, 'bool'],
      db_size_quota: [12, 'int'],
    }),
  ),
} as const
