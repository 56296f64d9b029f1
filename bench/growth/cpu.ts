/** CPU time that processes have used, from Linux; elsewhere there is none. */
import { readdirSync, readFileSync } from 'node:fs'
import { treeOf } from 'holdfast-lab/servers'

/** A stopwatch for these processes and all that they start. It shows null where CPU time cannot be known. */
export function startCpuWatch(roots: readonly number[]): () => number | null {
  if (process.platform !== 'linux' || roots.length === 0) return () => null
  const began = new Map(roots.flatMap(treeOf).map((pid) => [pid, cpuMs(pid)]))
  // Processes that have ended since then count as nothing: their times are gone with them.
  return () => roots.flatMap(treeOf).reduce((sum, pid) => sum + cpuMs(pid) - (began.get(pid) ?? 0), 0)
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
