/** Client and servers on a core each: otherwise the scheduler moves them about, and every round measures something else. */
import { spawnSync } from 'node:child_process'

export interface Pinning {
  /** One sentence for the report. */
  readonly words: string
  /** Lets this process run everywhere again. The servers are left where they are. */
  undo(): void
}

/**
 * The first core that this process may use for itself, with all its threads, and the second for all servers, and for the
 * proxy in front of them.
 */
export function pinApart(servers: readonly number[], proxy?: number): Pinning {
  const before = coresOf(process.pid)
  const [own, theirs] = before
  if (own === undefined || theirs === undefined)
    return { words: 'Client and server are not pinned to cores', undo() {} }
  pin(process.pid, [own])
  for (const pid of proxy === undefined ? servers : [...servers, proxy]) pin(pid, [theirs])
  const others = `${servers.length === 1 ? 'the server' : 'all servers together'}${proxy === undefined ? '' : ' and the proxy'}`
  const words = `The client is pinned to one core, ${others} to another`
  return { words, undo: () => pin(process.pid, before) }
}

/** None when there is no `taskset` here. */
function coresOf(pid: number): number[] {
  const { status, stdout } = spawnSync('taskset', ['-c', '-p', String(pid)], { encoding: 'utf8' })
  const list = status === 0 ? /:\s*([\d,-]+)\s*$/.exec(stdout)?.[1] : undefined
  return (list ?? '')
    .split(',')
    .filter((part) => part !== '')
    .flatMap((part) => {
      const [from = 0, to = from] = part.split('-').map(Number)
      return Array.from({ length: to - from + 1 }, (_, index) => from + index)
    })
}

function pin(pid: number, cores: readonly number[]): void {
  const { status, stderr } = spawnSync('taskset', ['-a', '-c', '-p', cores.join(','), String(pid)], {
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`taskset could not pin process ${pid}: ${stderr.trim()}`)
}
