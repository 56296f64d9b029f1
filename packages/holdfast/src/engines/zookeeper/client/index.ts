export { ZooKeeperClient, type ZooKeeperClientOptions, type ZooKeeperTls } from './client.ts'
export type {
  CreateMode,
  Op,
  Part,
  PartOp,
  PartResult,
  Refusal,
  Refused,
  Reply,
  Request,
  Requests,
  Results,
  Stat,
} from './messages.ts'
export type { Prolonged, Replies, Session, TreeEvent, TreeWatcher, WatchTold } from './session.ts'
