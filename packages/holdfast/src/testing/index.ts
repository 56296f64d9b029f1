/**
 * For tests: of code that uses a locker (`testLocker`), of your own backend, store, cluster or guard (`describeBackend`, `describeStore`,
 * `describeCluster`, `describeGuard`), and of anything over an engine that misbehaves (`faultyBackend`).
 */

// For the world of a backend: its clients, cases side by side, and one time for clients and server.
export { atOnce } from './conformance/at-once.ts'
export { Clients, type Wrap } from './conformance/clients.ts'
export { type Player, SharedTime, type SharedTimeOptions } from './conformance/shared-time.ts'
export {
  type BackendCase,
  type BackendSuite,
  backendCases,
  type Capability,
  type ClientOptions,
  type DeclaredException,
  describeBackend,
  type Hook,
  type World,
} from './describe-backend.ts'
export {
  type ClusterAbility,
  type ClusterCase,
  type ClusterDoor,
  type ClusterMember,
  type ClusterSuite,
  type ClusterWorld,
  clusterCases,
  describeCluster,
} from './describe-cluster.ts'
export {
  describeGuard,
  type GuardCase,
  type GuardException,
  type GuardSuite,
  type GuardWorld,
  guardCases,
} from './describe-guard.ts'
export {
  describeStore,
  type StoreCase,
  type StoreSessionWorld,
  type StoreSuite,
  type StoreWorld,
  storeCases,
} from './describe-store.ts'
export { enqueued, type QueuedCall } from './enqueued.ts'
export { createFakeClock, type FakeClock } from './fake-clock.ts'
export {
  type CallKind,
  callKinds,
  type Fault,
  type FaultKind,
  type FaultPlan,
  type PlannedCall,
  type RandomFaultOptions,
  randomFaults,
} from './faults.ts'
export { FaultyBackend, type FaultyBackendOptions, faultyBackend } from './faulty-backend.ts'
export type { LoggedCall } from './faulty-wire.ts'
export { seededRandom } from './seeded-random.ts'
export { type TestLocker, type TestLockerOptions, testLocker } from './test-locker.ts'
export { weakenWaiting } from './weaken-waiting.ts'
