/** `holdfast doctor`: what the engine's configuration and this machine mean for locks. */
import { type AnyLocker, defaults, type Finding, onEvent } from 'holdfast'
import { type EngineFlags, withEngine } from './engine.ts'
import { messageOf } from './exits.ts'
import { machineFindings } from './machine.ts'
import { withoutPasswords } from './passwords.ts'
import { Signals } from './signals.ts'
import { bold, isTerminal, out, outJson, printable } from './terminal.ts'

export interface DoctorFlags extends EngineFlags {
  readonly json?: boolean
}

const exitCodes = { note: 0, warning: 1, danger: 2 } as const
type Severity = keyof typeof exitCodes

/** The exit code is that of the worst finding. */
export async function doctor(url: string | undefined, flags: DoctorFlags): Promise<number> {
  // What is told at start is among the findings.
  onEvent('warning', () => {})
  const signals = new Signals()
  const examine = async (locker: AnyLocker) => {
    // The engine's own first: they say more than the failure of a call does.
    const ofEngine = await locker.diagnose()
    const ofCalls = await callFindings(locker).catch((error) => [unusable(error)])
    const found = [...ofEngine, ...ofCalls, ...(await machineFindings(defaults.ttlMs))]
    const findings = found.toSorted((a, b) => exitCodes[b.severity] - exitCodes[a.severity])
    if (flags.json || !isTerminal()) findings.forEach(outJson)
    else out(findings.map(described).join('\n\n'))
    return Math.max(0, ...findings.map(({ severity }) => exitCodes[severity]))
  }
  const work = (locker: AnyLocker) => signals.unlessCancelled(examine(locker))
  return withEngine({ ...flags, ...(url !== undefined && { url }) }, work, signals)
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
/** These expire leases by a wall clock. */
const wallClocks: readonly string[] = ['redis', 'postgres']

/** What becomes of calls: reads, and then a lease that is held for a moment. */
async function callFindings(locker: AnyLocker): Promise<readonly Finding[]> {
  const { clock, info, holder } = locker
  const name = `holdfast-doctor/${holder}`
  const times: number[] = []
  for (let read = 0; read < READS; read++) {
    const fromMs = clock.monotonicMs()
    await locker.inspect(name)
    times.push(clock.monotonicMs() - fromMs)
  }
  const ofLease = await leaseFindings(locker, name).catch((error) => [unusable(error)])
  return [roundTrip(info.name, times), ...ofLease]
}

async function leaseFindings(locker: AnyLocker, name: string): Promise<readonly Finding[]> {
  const lease = await locker.tryAcquire(name, { note: 'holdfast doctor' })
  if (lease === null) return []
  // Only a name that is used shows the engine's clock.
  const beforeMs = locker.clock.wallMs()
  const state = await locker.inspect(name).finally(() => lease.release())
  const apartMs = state === null ? 0 : Math.max(state.atMs - locker.clock.wallMs(), beforeMs - state.atMs)
  return wallClocks.includes(locker.info.name) ? clocks(apartMs) : []
}

export function roundTrip(engine: string, timesMs: readonly number[]): Finding {
  const sorted = timesMs.toSorted((a, b) => a - b)
  const [median = 0, worst = 0] = [sorted[sorted.length >> 1], sorted.at(-1)]
  const isSlow = (ms: number) => ms * READS_IN_A_TTL > defaults.ttlMs
  return found(
    'ROUND_TRIP',
    isSlow(median) ? 'danger' : isSlow(worst) ? 'warning' : 'note',
    `A read of ${engine} takes ${median.toFixed(1)} ms, and ${worst.toFixed(1)} ms at worst, of ${timesMs.length}.`,
    `A renewal takes as long, and one that fails must leave time for another one within the TTL (${defaults.ttlMs} ms by default).`,
    `Use TTLs of ${Math.ceil((worst * READS_IN_A_TTL) / 1_000)} s or more; where that is long, see to the network and to the engine’s load.`,
  )
}

const MOST_APART_MS = 1_000

function clocks(apartMs: number): readonly Finding[] {
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

function unusable(error: unknown): Finding {
  return found(
    'ENGINE',
    'danger',
    withoutPasswords(messageOf(error)),
    'Leases are not granted or renewed like this.',
    'See the other findings; else give this user the rights that the message names, or another engine.',
  )
}

export function found(code: string, severity: Severity, what: string, why: string, fix: string): Finding {
  return { code: `HOLDFAST_DOCTOR_${code}`, severity, what, why, fix }
}
