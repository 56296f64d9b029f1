export { ZooKeeperClient, type ZooKeeperClientOptions } from './client.ts'
export { ensembleFindings } from './findings.ts'
export type {
  CreateMode,
  NodeEvent,
  Op,
  Part,
  PartOp,
  PartResult,
  Refusal,
  Refused,
  Reply,
  Request,
  Stat,
} from './messages.ts'
export type { Prolonged, Replies, Session } from './session.ts'
export type { ZooKeeperTls } from './socket.ts'
export type { TreeWatcher, WatchTold } from './watches.ts'
