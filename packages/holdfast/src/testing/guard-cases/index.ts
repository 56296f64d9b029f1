/** All cases, in the order of their rules. */
import type { GuardCase } from './case.ts'
import { enteringCases } from './entering.ts'
import { forgettingCases } from './forgetting.ts'
import { lastingCases } from './lasting.ts'
import { modellingCases } from './modelling.ts'
import { onceCases } from './once.ts'
import { orderingCases } from './ordering.ts'
import { provingCases } from './proving.ts'
import { sharingCases } from './sharing.ts'
import { tellingCases } from './telling.ts'
import { transactingCases } from './transacting.ts'
import { trustingCases } from './trusting.ts'

export function guardCases(): readonly GuardCase[] {
  return [
    ...orderingCases,
    ...sharingCases,
    ...provingCases,
    ...trustingCases,
    ...transactingCases,
    ...onceCases,
    ...forgettingCases,
    ...enteringCases,
    ...lastingCases,
    ...tellingCases,
    ...modellingCases,
  ]
}
