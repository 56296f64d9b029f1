// Runs Spin on a Promela model: generates the verifier, compiles it, and searches every reachable state.

import { execFile } from 'node:child_process'
import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { need } from '../obtain/find.ts'

const run = promisify(execFile)

/** Deeper than any path of the model, so that no search is cut short unnoticed. */
const DEPTH = 100_000

export interface Verdict {
  /** Whether every reachable state was visited. */
  readonly complete: boolean
  readonly errors: number
  readonly states: number
  /** The property that was violated, or null. */
  readonly violated: string | null
  /** The counter-example step by step, as Spin tells it; empty if there is none. */
  readonly counterExample: readonly string[]
}

export async function checkModel(model: string, defines: readonly string[]): Promise<Verdict> {
  const spin = need('spin').path
  const gcc = need('gcc').path
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-formal-'))
  const flags = defines.map((name) => `-D${name}`)
  const here = { cwd: folder, maxBuffer: 64 * 1_024 * 1_024 }
  try {
    // Spin writes its trail beside the model, so the model is taken to where it may write.
    const copy = basename(model)
    await copyFile(model, join(folder, copy))
    await run(spin, [...flags, '-a', copy], here)
    await run(gcc, ['-O2', '-w', '-DSAFETY', '-o', 'pan', 'pan.c'], here)
    const { stdout } = await run(join(folder, 'pan'), [`-m${DEPTH}`], here)
    const errors = numberIn(stdout, /errors:\s+(\d+)/)
    const trail = errors === 0 ? '' : await replay(spin, [...flags, '-t', '-p', '-g', copy], here)
    return {
      complete: !/max search depth too small|out of memory|Search not completed/i.test(stdout),
      errors,
      states: numberIn(stdout, /(\d+(?:\.\d+e\+\d+)?)\s+states, stored/),
      violated: /assertion violated \(([^)]*\)?)\)/.exec(stdout)?.[1] ?? null,
      counterExample: trail.split('\n').filter((line) => line.trim() !== ''),
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** The replay ends where the assertion fails, and Spin then says so by its exit code, too. */
async function replay(
  spin: string,
  parameters: readonly string[],
  here: { cwd: string; maxBuffer: number },
): Promise<string> {
  try {
    return (await run(spin, [...parameters], here)).stdout
  } catch (error) {
    return (error as { stdout?: string }).stdout ?? ''
  }
}

function numberIn(text: string, pattern: RegExp): number {
  const found = pattern.exec(text)?.[1]
  if (found === undefined) throw new Error(`Spin's verifier printed something unexpected:\n${text}`)
  return Number(found)
}
