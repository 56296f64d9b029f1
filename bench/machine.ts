/** Where the figures come from, and how to make them again: without it they say nothing to anybody else. */
import { statfsSync } from 'node:fs'
import { availableParallelism, cpus, totalmem } from 'node:os'

export interface Machine {
  readonly cpu: string
  readonly cores: number
  readonly memoryGiB: number
  readonly platform: string
  readonly fileSystem: string
  readonly node: string
  readonly sqlite: string
  readonly date: string
  /** The command that printed the figures. */
  readonly command: string
}

/** File systems by the numbers of Linux. Forcing data to disk costs nothing on some of these. */
const fileSystems: Record<number, string> = {
  61267: 'ext4',
  1481003842: 'xfs',
  2435016766: 'btrfs',
  801189825: 'zfs',
  16914836: 'tmpfs (in memory)',
  2035054128: 'overlayfs',
}

export function describeMachine(folder: string): Machine {
  const { type } = statfsSync(folder)
  return {
    cpu: cpus()[0]?.model.trim() || 'unknown CPU',
    cores: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    platform: `${process.platform} ${process.arch}`,
    fileSystem: fileSystems[type] ?? `file system type 0x${type.toString(16)}`,
    node: process.version,
    sqlite: process.versions.sqlite ?? 'none',
    date: new Date().toISOString().slice(0, 10),
    command: ['npm run bench --', ...process.argv.slice(2).filter((word) => word !== '--save')].join(' '),
  }
}

export function machineInWords(machine: Machine): string {
  const { cpu, cores, memoryGiB, platform, fileSystem, node, sqlite, date, command } = machine
  return (
    `${cpu}, ${cores} cores, ${memoryGiB} GiB, ${platform}, files on ${fileSystem}, ` +
    `Node ${node} with SQLite ${sqlite}, ${date}: ${command}`
  )
}
