/** The bank of planted bugs. Every runner takes out of it what it can plant. */
import { backendBugs } from './backends/index.ts'
import type { PlantedBug } from './bug.ts'
import { guardBugs } from './guards.ts'
import { schemaBugs } from './schemas.ts'
import { sourceBugs } from './sources/index.ts'

export const bugs: readonly PlantedBug[] = [...sourceBugs, ...schemaBugs, ...backendBugs, ...guardBugs]
