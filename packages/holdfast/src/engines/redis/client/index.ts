export type { IoRedisClient, NodeRedisClient, RedisClient } from './client.ts'
export { ClientState } from './client-state.ts'
export {
  type DedicatedConnection,
  RedisConnection,
  type RedisConnectionOptions,
  type RedisNode,
} from './connection.ts'
export { redisFailure, remedyOf, serverCodeOf } from './failures.ts'
export { digestOf, foreignHolder } from './foreign-holder.ts'
export {
  type OpenedRedisClient,
  partsOfLocation,
  type RedisLibraries,
  redisClientFromUrl,
} from './from-url.ts'
export { hashTagOf, slotOf } from './hash-slots.ts'
export { escapeGlob } from './key-text.ts'
export { LockKeys } from './lock-keys.ts'
export { OwnConnections } from './own-connections.ts'
export type { Promptness } from './prompt.ts'
export { type RedisReply, UNKNOWN_ADDRESS } from './raw.ts'
export { checkClientOptions, isRedisClient } from './recognizing.ts'
export {
  readScanCursor,
  SCAN_START,
  type ScanPosition,
  type ScanRequest,
  scanCursor,
  scanStep,
} from './scan.ts'
export { type RedisScript, redisScript } from './script.ts'
export {
  type Concern,
  evictionConcern,
  evictionOf,
  ifPermitted,
  infoField,
  isDenied,
  isOlder,
  OLDEST_REDIS,
  refusalOf,
  settingOf,
  textOf,
  unchecked,
} from './server-findings.ts'
export type { Subscription } from './subscriber.ts'
