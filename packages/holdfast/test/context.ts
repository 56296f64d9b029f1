/** The context that the parts of a locker share, for tests of a part on its own. */

import { Background } from '../src/base/background.ts'
import { defaults } from '../src/base/defaults.ts'
import type { LockerContext } from '../src/locker/context.ts'
import type { Backend } from '../src/spi.ts'

export function contextOf(
  { clock, random, info }: Backend<'fenced'>,
  over: Partial<LockerContext> = {},
): LockerContext {
  const { callTimeoutMs, maxSessions, maxAbandonedPerSession } = defaults
  return {
    clock,
    random,
    info,
    backendName: info.name,
    holder: 'test',
    callTimeoutMs,
    maxSessions,
    maxAbandonedPerSession,
    background: new Background(),
    ...over,
  }
}
