/** `holdfast doctor`: what the engine's configuration and this machine mean for locks. */
import { type AnyLocker, defaults, type Finding, onEvent } from 'holdfast'
import { closeEngine, type EngineFlags, openEngine } from './engine.ts'
import { machineFindings } from './machine.ts'
import { bold, isTerminal, out, printable } from './terminal.ts'

export interface DoctorFlags extends EngineFlags {
  readonly json?: boolean
}

const exitCodes = { note: 0, warning: 1, danger: 2 } as const
type Severity = keyof typeof exitCodes

/** The exit code is that of the worst finding. */
export async function doctor(url: string | undefined, flags: DoctorFlags): Promise<number> {
  // What is told at start is among the findings.
  onEvent('warning', () => {})
  const locker = await openEngine({ ...flags, ...(url !== undefined && { url }) })
  try {
    const { roundTrip, findings: ofEngine } = await engineFindings(locker)
    const found = [...(await locker.diagnose()), ...ofEngine, ...(await machineFindings(defaults.ttlMs))]
    const findings = found.toSorted((a, b) => exitCodes[b.severity] - exitCodes[a.severity])
    if (flags.json || !isTerminal()) for (const finding of findings) out(JSON.stringify(finding))
    else out([...findings.map(described), `${printable(locker.info.name)}: ${roundTrip}.`].join('\n\n'))
    return Math.max(0, ...findings.map(({ severity }) => exitCodes[severity]))
  } finally {
    await closeEngine(locker)
  }
}

function described({ code, severity, what, why, fix }: Finding): string {
  return [
    bold(`${severity.toUpperCase()}  ${code}`),
    ...[what, why, fix].map((text) => `  ${printable(text)}`),
  ].join('\n')
}

const READS = 20
/** A renewal comes every third of the TTL. With a second try in between, one read may take so little of it. */
const READS_IN_A_TTL = 12

interface Measured {
  readonly roundTrip: string
  readonly findings: readonly Finding[]
}

async function engineFindings(locker: AnyLocker): Promise<Measured> {
  const { clock } = locker
  const name = `holdfast-doctor/${locker.holder}`
  const times: number[] = []
  for (let read = 0; read < READS; read++) {
    const fromMs = clock.monotonicMs()
    await locker.inspect(name)
    times.push(clock.monotonicMs() - fromMs)
  }
  times.sort((a, b) => a - b)
  const [median = 0, worst = 0] = [times[READS / 2], times.at(-1)]
  const slow = worst * READS_IN_A_TTL > defaults.ttlMs
  return {
    roundTrip: `a read takes ${median.toFixed(1)} ms, and ${worst.toFixed(1)} ms at worst, of ${READS}`,
    findings: [
      ...(slow ? [slowEngine(worst)] : []),
      ...(wallClocks.includes(locker.info.name) ? await clockFindings(locker, name) : []),
    ],
  }
}

function slowEngine(worstMs: number): Finding {
  return found(
    'ROUND_TRIP',
    'warning',
    `The slowest of ${READS} reads took ${Math.round(worstMs)} ms.`,
    `A renewal that is so slow leaves no time for another one within a TTL of ${defaults.ttlMs} ms.`,
    `Use TTLs of ${Math.ceil((worstMs * READS_IN_A_TTL) / 1_000)} s or more, or see to the network and to the engine’s load.`,
  )
}

/** These expire leases by a wall clock. */
const wallClocks: readonly string[] = ['redis', 'postgres']
const MOST_APART_MS = 1_000

/** Only a name that is used shows the engine’s clock, so one is held for a moment. */
async function clockFindings(locker: AnyLocker, name: string): Promise<readonly Finding[]> {
  const lease = await locker.tryAcquire(name, { note: 'holdfast doctor' })
  if (lease === null) return []
  const apartMs = await apart(locker, name).finally(() => lease.release())
  if (apartMs <= MOST_APART_MS) return []
  return [
    found(
      'CLOCKS',
      'warning',
      `The clock of the engine and that of this machine are ${(apartMs / 1_000).toFixed(1)} s apart.`,
      'One of them is not synchronised. A step that corrects the engine’s clock ends leases early, or keeps the names of the dead.',
      'Run NTP on both, and let it slew the clock (chrony does after its start).',
    ),
  ]
}

/** How far the engine's clock is from this machine's, at least. */
async function apart(locker: AnyLocker, name: string): Promise<number> {
  const beforeMs = locker.clock.wallMs()
  const state = await locker.inspect(name)
  const afterMs = locker.clock.wallMs()
  return state === null ? 0 : Math.max(state.atMs - afterMs, beforeMs - state.atMs)
}

export function found(code: string, severity: Severity, what: string, why: string, fix: string): Finding {
  return { code: `HOLDFAST_DOCTOR_${code}`, severity, what, why, fix }
}
