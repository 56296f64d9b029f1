// The clock of one server (or of several that share it), to be moved while it runs: see clock-shim.c.

import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, closeSync, existsSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { need } from '../obtain/find.ts'
import { base, currentRun, newFolder } from '../servers/run.ts'

export interface Clock {
  /** Environment variables that a program needs to live by this clock. */
  readonly environment: Readonly<Record<string, string>>
  /** Moves the wall clock, forwards or backwards, as a step of NTP or an operator would. */
  step(ms: number): void
  /** Moves the clock that should only ever go at its own pace, as a suspended virtual machine may see it jump. */
  stepMonotonic(ms: number): void
  /** The wall clock stands still from now on, and moves by `step` alone: for tests that must not depend on real time. */
  freeze(): void
  /** Both clocks show the real time again. */
  reset(): void
}

export function createClock(): Clock {
  const folder = newFolder('clock')
  // A server may run as another user.
  chmodSync(folder, 0o711)
  const file = join(folder, 'offsets')
  const offsets = { realtime: 0n, monotonic: 0n, frozen: 0n }
  const write = () => {
    const bytes = Buffer.alloc(24)
    bytes.writeBigInt64LE(offsets.realtime, 0)
    bytes.writeBigInt64LE(offsets.monotonic, 8)
    bytes.writeBigInt64LE(offsets.frozen, 16)
    // In place, because the servers have mapped this very file.
    const opened = openSync(file, existsSync(file) ? 'r+' : 'w')
    writeSync(opened, bytes, 0, bytes.length, 0)
    closeSync(opened)
  }
  write()
  chmodSync(file, 0o644)
  return {
    environment: { LD_PRELOAD: shim(), HOLDFAST_CLOCK_FILE: file },
    step(ms) {
      const nanoseconds = BigInt(Math.round(ms * 1e6))
      offsets.realtime += nanoseconds
      if (offsets.frozen !== 0n) offsets.frozen += nanoseconds
      write()
    },
    freeze() {
      offsets.frozen = BigInt(Date.now()) * 1_000_000n + offsets.realtime
      write()
    },
    stepMonotonic(ms) {
      offsets.monotonic += BigInt(Math.round(ms * 1e6))
      write()
    },
    reset() {
      offsets.realtime = offsets.monotonic = offsets.frozen = 0n
      write()
    },
  }
}

/** Compiles the library when it is first used. It lies where a server that runs as another user can read it. */
function shim(): string {
  const source = join(import.meta.dirname, 'clock-shim.c')
  const version = createHash('sha256').update(readFileSync(source)).digest('hex').slice(0, 12)
  currentRun()
  const library = join(base, `clock-shim-${version}.so`)
  if (!existsSync(library)) {
    const unfinished = `${library}.${process.pid}`
    execFileSync(need('gcc').path, ['-shared', '-fPIC', '-O2', '-Wall', '-Werror', '-o', unfinished, source])
    chmodSync(unfinished, 0o755)
    // Renamed at the end, so that no process loads half a library.
    renameSync(unfinished, library)
  }
  return library
}
