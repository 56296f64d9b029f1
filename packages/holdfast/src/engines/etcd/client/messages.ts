/** The messages and methods of etcd's gRPC interface that Holdfast uses (rpc.proto of etcd 3.4). */
import { received, Schema, sent } from './protobuf.ts'

type MessageOf<S> = S extends Schema<infer M> ? M : never

const header = received({
  cluster_id: [1, 'id'],
  revision: [3, 'int'],
  raft_term: [4, 'int'],
})
const keyValue = received({
  key: [1, 'text'],
  create_revision: [2, 'int'],
  mod_revision: [3, 'int'],
  value: [5, 'text'],
  lease: [6, 'int'],
})
export type KeyValue = MessageOf<typeof keyValue>

const rangeRequest = sent({
  key: [1, 'text'],
  range_end: [2, 'text'],
  limit: [3, 'int'],
  revision: [4, 'int'],
  sort_order: [5, 'int'],
  sort_target: [6, 'int'],
  keys_only: [8, 'bool'],
  count_only: [9, 'bool'],
  max_create_revision: [13, 'int'],
})
export type RangeRequest = MessageOf<typeof rangeRequest>

const rangeResponse = received({
  header: [1, header],
  kvs: [2, keyValue, 'repeated'],
  more: [3, 'bool'],
  count: [4, 'int'],
})
const put = sent({ key: [1, 'text'], value: [2, 'text'], lease: [3, 'int'] })
const compare = sent({
  result: [1, 'int'],
  target: [2, 'int'],
  key: [3, 'text'],
  create_revision: [5, 'int'],
  mod_revision: [6, 'int'],
  value: [7, 'text'],
  range_end: [64, 'text'],
})
export type Compare = MessageOf<typeof compare>

// A transaction contains operations, and an operation may be a transaction.
export interface Operation {
  readonly range?: RangeRequest
  readonly put?: MessageOf<typeof put>
  readonly delete?: { readonly key: string }
  readonly txn?: TxnRequest
}

export interface TxnRequest {
  readonly compare: readonly Compare[]
  readonly success: readonly Operation[]
  readonly failure: readonly Operation[]
}

export interface OperationResponse {
  readonly range?: MessageOf<typeof rangeResponse>
  readonly txn?: TxnResponse
}

export interface TxnResponse {
  readonly header?: MessageOf<typeof header>
  readonly succeeded: boolean
  readonly responses: readonly OperationResponse[]
}

const operation = new Schema<Operation>({})
const operationResponse = new Schema<OperationResponse>({})
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
  put: [2, put],
  delete: [3, sent({ key: [1, 'text'] })],
  txn: [4, txnRequest],
})
operationResponse.define({ range: [1, rangeResponse], txn: [4, txnResponse] })

const watchCreate = sent({
  key: [1, 'text'],
  range_end: [2, 'text'],
  start_revision: [3, 'int'],
  filters: [5, 'int', 'repeated'],
  prev_kv: [6, 'bool'],
  watch_id: [7, 'int'],
  fragment: [8, 'bool'],
})
export type WatchCreate = MessageOf<typeof watchCreate>
const watchRequest = sent({ create: [1, watchCreate], cancel: [2, sent({ watch_id: [1, 'int'] })] })
export type WatchRequest = MessageOf<typeof watchRequest>

/** `type` 0: put, 1: deleted. */
const event = received({ type: [1, 'int'], kv: [2, keyValue], prev_kv: [3, keyValue] })
/** One without a key is not valid (`Watches`). */
export type Event = MessageOf<typeof event> & { readonly kv: KeyValue }
const watchResponse = received({
  header: [1, header],
  watch_id: [2, 'int'],
  created: [3, 'bool'],
  canceled: [4, 'bool'],
  cancel_reason: [6, 'text'],
  fragment: [7, 'bool'],
  events: [11, event as Schema<Event>, 'repeated'],
})
export type WatchResponse = MessageOf<typeof watchResponse>

const member = received({ name: [2, 'text'], is_learner: [5, 'bool'] })
const lease = received({ header: [1, header], ID: [2, 'int'], TTL: [3, 'int'] })
const leaseId = sent({ ID: [1, 'int'] })

/** Every answer of etcd says which cluster gives it. One that does not is no answer. */
export interface EtcdAnswer {
  readonly header?: MessageOf<typeof header>
}

export interface Method<Request, Response extends EtcdAnswer> {
  readonly path: string
  readonly request: Schema<Request>
  readonly response: Schema<Response>
}

function method<Q, R extends EtcdAnswer>(
  path: string,
  request: Schema<Q>,
  response: Schema<R>,
): Method<Q, R> {
  return { path: `/etcdserverpb.${path}`, request, response }
}

export const methods = {
  range: method('KV/Range', rangeRequest, rangeResponse),
  txn: method('KV/Txn', txnRequest, txnResponse),
  leaseGrant: method('Lease/LeaseGrant', sent({ TTL: [1, 'int'], ID: [2, 'int'] }), lease),
  leaseRevoke: method('Lease/LeaseRevoke', leaseId, received({ header: [1, header] })),
  /** A stream by its definition. One request, one answer, and its end are a valid use of it. */
  leaseKeepAlive: method('Lease/LeaseKeepAlive', leaseId, lease),
  leaseTimeToLive: method(
    'Lease/LeaseTimeToLive',
    sent({ ID: [1, 'int'], keys: [2, 'bool'] }),
    received({ header: [1, header], TTL: [3, 'int'], grantedTTL: [4, 'int'], keys: [5, 'text', 'repeated'] }),
  ),
  watch: method('Watch/Watch', watchRequest, watchResponse),
  authenticate: method(
    'Auth/Authenticate',
    sent({ name: [1, 'text'], password: [2, 'text'] }),
    received({ header: [1, header], token: [2, 'text'] }),
  ),
  memberList: method(
    'Cluster/MemberList',
    sent({}),
    received({ header: [1, header], members: [2, member, 'repeated'] }),
  ),
  /** `db_size_quota`: since etcd 3.6. */
  status: method(
    'Maintenance/Status',
    sent({}),
    received({
      header: [1, header],
      db_size: [3, 'int'],
      errors: [8, 'text', 'repeated'],
      is_learner: [10, 'bool'],
      db_size_quota: [12, 'int'],
    }),
  ),
} as const
