// Free ports on loopback, claimed for as long as the run lasts.
//
// They lie below the range from which the kernel takes ports for outgoing connections, so that nobody is given
// one by chance while its server is down; and a claim in the file system keeps other runs of the harness off it.

import { randomInt } from 'node:crypto'
import { readFileSync, symlinkSync, unlinkSync } from 'node:fs'
import { createServer } from 'node:net'
import { basename, join } from 'node:path'
import { base, currentRun } from './run.ts'

export const host = '127.0.0.1'

const lowest = 15_000

export async function claimPort(): Promise<number> {
  const { folder } = currentRun()
  for (let tries = 0; tries < 1_000; tries += 1) {
    const port = randomInt(lowest, ephemeralFrom())
    if (claim(port, `../${basename(folder)}`)) {
      if (await isFree(port)) return port
      releasePort(port)
    }
  }
  throw new Error('no free port on loopback')
}

export function claimPorts(count: number): Promise<number[]> {
  return Promise.all(Array.from({ length: count }, claimPort))
}

export function releasePort(port: number): void {
  unlinkSync(join(base, 'ports', String(port)))
}

/** To make a link is atomic and fails when there is one. */
function claim(port: number, owner: string): boolean {
  try {
    symlinkSync(owner, join(base, 'ports', String(port)))
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer()
    probe.once('error', () => resolve(false))
    probe.listen({ host, port }, () => probe.close(() => resolve(true)))
  })
}

function ephemeralFrom(): number {
  const from = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s+/)[0])
  return from > lowest + 1_000 ? from : 65_536
}
