import type { Break } from './break.ts'
import { endingBreaks } from './ending.ts'
import { outsideBreaks } from './outside.ts'
import { ownershipBreaks } from './ownership.ts'
import { showingBreaks } from './showing.ts'
import { timeBreaks } from './time.ts'
import { waitingBreaks } from './waiting.ts'

export type { Break } from './break.ts'

export const breaks: readonly Break[] = [
  ...timeBreaks,
  ...ownershipBreaks,
  ...waitingBreaks,
  ...showingBreaks,
  ...endingBreaks,
  ...outsideBreaks,
]
