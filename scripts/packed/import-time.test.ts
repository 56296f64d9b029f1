// Cost of importing the library, beside a client library of the same engine.

import { expect, test } from 'vitest'
import { packedProject, runProgram } from '../lib/packed-project.ts'

const ROUNDS = 9

test('holdfast/redis takes at most half the time of ioredis to import', async () => {
  const { folder, write } = packedProject({ packages: ['ioredis'] })
  // Processor time, not the clock's: other tests run meanwhile.
  const program = write(
    'program.js',
    `const before = process.cpuUsage()
     await import(process.argv[2])
     const { user, system } = process.cpuUsage(before)
     console.log(user + system)
     process.exit()`,
  )
  const measure = async (specifier: string) => {
    const { stdout } = await runProgram(process.execPath, [program, specifier], { cwd: folder })
    return Number(stdout)
  }
  const ours: number[] = []
  const theirs: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    ours.push(await measure('holdfast/redis'))
    theirs.push(await measure('ioredis'))
  }
  const ratio = median(ours) / median(theirs)
  expect(ratio, `${median(ours)} µs and ${median(theirs)} µs`).toBeGreaterThan(0)
  expect(ratio, `${median(ours)} µs and ${median(theirs)} µs`).toBeLessThanOrEqual(0.5)
})

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN
}
