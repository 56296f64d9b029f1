/** Everything that cases are written with. */
export {
  Actor,
  expectAlive,
  expectBusy,
  expectGranted,
  expectUnavailable,
  isNotApplied,
  QueuedCall,
  tokenOf,
  type Wanted,
} from './actor.ts'
export { topic } from './case.ts'
export { expectMs, expectToCountFromSession } from './counting.ts'
export { Operator, operatorCall } from './operator.ts'
export { abortedCall, call, permits, request, secretOf, shared } from './requests.ts'
export { newSessionId, Stage } from './stage.ts'
export { hookOf } from './world.ts'
