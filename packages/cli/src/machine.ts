/** Findings about this machine: its pauses, its limits, its Node. */
import { readFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { type Finding, systemClock } from 'holdfast'
import { found } from './doctor.ts'
import { pause } from './pause.ts'

export async function machineFindings(ttlMs: number): Promise<readonly Finding[]> {
  return [...pauses(await longestDelayMs(), ttlMs), ...openFiles(limits()), ...node(process.versions.node)]
}

const WATCH_MS = 1_000
const RESOLUTION_MS = 10

async function longestDelayMs(): Promise<number> {
  const delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  delays.enable()
  await pause(systemClock, WATCH_MS)
  delays.disable()
  return Math.max(0, delays.max / 1e6 - RESOLUTION_MS)
}

const PAUSES_IN_A_TTL = 30

/** An idle program was not called for so long. */
export function pauses(delayMs: number, ttlMs: number): readonly Finding[] {
  if (delayMs * PAUSES_IN_A_TTL <= ttlMs) return []
  return [
    found(
      'PAUSES',
      'warning',
      `This idle program was held up for ${Math.round(delayMs)} ms within a second.`,
      `A machine that is so busy, or a CPU limit that is so low, delays renewals; a pause of ${ttlMs} ms loses the lease.`,
      'Raise the CPU limit of the container, move other work away, or use a longer TTL.',
    ),
  ]
}

const FEW_FILES = 1_024

export function openFiles(limitsText: string): readonly Finding[] {
  const [, most] = /^Max open files\s+\d+\s+(\d+)/m.exec(limitsText) ?? []
  if (most === undefined || Number(most) >= FEW_FILES) return []
  return [
    found(
      'OPEN_FILES',
      'warning',
      `This user may have ${most} files and connections open.`,
      'A program that reaches this cannot connect to the engine again, and loses its leases.',
      'Raise the limit (ulimit -n, or LimitNOFILE of the unit).',
    ),
  ]
}

/** Linux alone has this file. */
function limits(): string {
  try {
    return readFileSync('/proc/self/limits', 'utf8')
  } catch {
    // Without it there is nothing to tell.
    return ''
  }
}

export function node(version: string): readonly Finding[] {
  if (Number.parseInt(version, 10) % 2 === 0) return []
  return [
    found(
      'NODE',
      'note',
      `This is Node ${version}.`,
      'Releases with an odd number get fixes for half a year only.',
      'Use a release with long-term support in production.',
    ),
  ]
}
