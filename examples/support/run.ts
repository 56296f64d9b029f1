/** For the tests of the examples: runs one as a person would. Rejects if it exits with another code than 0. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'

export async function run(example: string, ...options: string[]): Promise<string[]> {
  const program = join(import.meta.dirname, '..', example, 'main.ts')
  const { stdout } = await promisify(execFile)(process.execPath, [program, ...options])
  return stdout.trim().split('\n')
}
