/**
 * Which machine this is, and since which start. Expiry is judged by the monotonic clock, whose readings mean
 * something only to processes of the same boot and of the same time namespace (T71, restarts of the machine): after a restart the old
 * readings lie days ahead, and in another time namespace they are shifted.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { type Clock, hasSharedZero, systemClock } from '../../../base/clock.ts'
import { UnsupportedError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'

export interface MachineIdentity {
  /** Different after every start of the machine, the same for all of its processes. */
  readonly bootId: string
  /** How far this process's monotonic clock is shifted from the machine's, in any fixed notation. */
  readonly timeNamespaceOffset: string
}

const NOT_SHIFTED = '0 0'

let own: MachineIdentity | undefined

export function ownMachine(): MachineIdentity {
  own ??= identify(process.platform)
  return own
}

const processId = systemRandom.id()

/**
 * Where a monotonic clock counts from the start of the process, its readings mean nothing to other processes. There each
 * process counts as a boot of its own. So it has the file alone, and what an earlier one left is removed.
 */
export function asSeenBy(clock: Clock, machine: MachineIdentity, isShared = hasSharedZero): MachineIdentity {
  if (clock !== systemClock || isShared) return machine
  return { ...machine, bootId: `${machine.bootId}/${processId}` }
}

/** Exported for its test; `ownMachine` asks the system once. */
export function identify(platform: NodeJS.Platform): MachineIdentity {
  try {
    if (platform === 'darwin')
      return {
        bootId: run('/usr/sbin/sysctl', '-n', 'kern.bootsessionuuid'),
        timeNamespaceOffset: NOT_SHIFTED,
      }
    if (platform !== 'linux') throw new Error(`not known for ${platform}`)
    const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return { bootId, timeNamespaceOffset: monotonicOffset(readTimeNamespaceOffsets()) }
  } catch (cause) {
    throw new UnsupportedError(
      'sqlite: this system does not say when it was started, so a lease from before a restart could not be told ' +
        'from a living one. Pass `machine: { bootId, timeNamespaceOffset }` with an id that changes when the machine restarts.',
      { cause },
    )
  }
}

function run(program: string, ...parameters: readonly string[]): string {
  return execFileSync(program, parameters, { encoding: 'utf8' }).trim()
}

/** Null on kernels that have no time namespaces. */
function readTimeNamespaceOffsets(): string | null {
  try {
    return readFileSync('/proc/self/timens_offsets', 'utf8')
  } catch {
    return null
  }
}

/** The seconds and nanoseconds of the line `monotonic <seconds> <nanoseconds>`. */
export function monotonicOffset(offsets: string | null): string {
  const [, seconds, nanoseconds] = /^monotonic\s+(-?\d+)\s+(-?\d+)$/m.exec(offsets ?? '') ?? []
  return seconds === undefined || nanoseconds === undefined ? NOT_SHIFTED : `${seconds} ${nanoseconds}`
}
