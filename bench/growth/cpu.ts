/** CPU time that processes have used, from Linux; elsewhere there is none. */
import { readdirSync, readFileSync } from 'node:fs'
import { treeOf } from 'holdfast-lab/servers'

/** With the processes that they have started; null if it cannot be known. */
export function cpuMsOf(roots: readonly number[]): number | null {
  if (process.platform !== 'linux' || roots.length === 0) return null
  return roots.flatMap(treeOf).reduce((sum, pid) => sum + cpuMs(pid), 0)
}

/** The scheduler's own figure, in nanoseconds; `stat` counts in hundredths of a second. */
function cpuMs(pid: number): number {
  try {
    const threads = readdirSync(`/proc/${pid}/task`)
    return threads.reduce((sum, thread) => {
      const [nanoseconds] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')
      return sum + Number(nanoseconds) / 1e6
    }, 0)
  } catch {
    // It ended meanwhile.
    return 0
  }
}
