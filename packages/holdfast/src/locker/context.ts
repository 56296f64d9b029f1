/** The context that all parts of one locker share. */

import type { Background } from '../base/background.ts'
import type { Random } from '../base/ids.ts'
import type { BackendInfo, Fencing } from '../spi.ts'
import type { Engine } from './call.ts'

export interface LockerContext extends Engine {
  readonly random: Random
  readonly info: BackendInfo<Fencing>
  /** The public label of this client. */
  readonly holder: string
  readonly callTimeoutMs: number
  readonly maxSessions: number
  /** How many marks of abandoned attempts a session may carry before another session replaces it. */
  readonly maxAbandonedPerSession: number
  readonly background: Background
}
