// The traps of docs/traps.md, which is generated from them: one file per section, see docs/traps/.

import type { TrapSection } from '../scripts/docs/trap-types.ts'
import { answers } from './traps/answers.ts'
import { attacks } from './traps/attacks.ts'
import { engines } from './traps/engines.ts'
import { faults } from './traps/faults.ts'
import { fencing } from './traps/fencing.ts'
import { identity } from './traps/identity.ts'
import { renewing } from './traps/renewing.ts'
import { surface } from './traps/surface.ts'
import { time } from './traps/time.ts'
import { waiting } from './traps/waiting.ts'

export const sections: readonly TrapSection[] = [
  time,
  answers,
  waiting,
  renewing,
  fencing,
  identity,
  surface,
  engines,
  attacks,
  faults,
]
