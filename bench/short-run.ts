/** A run of the benchmark that is too short to measure anything, but shows that everybody can still take part. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Report } from './report.ts'
import type { SubjectResult } from './run.ts'

export function run(...options: string[]): Promise<{ stdout: string; stderr: string }> {
  return promisify(execFile)(process.execPath, [
    '--disable-warning=ExperimentalWarning',
    join(import.meta.dirname, 'main.ts'),
    ...options,
  ])
}

export async function shortRun(...options: string[]): Promise<Report> {
  const { stdout } = await run(...options, '--json')
  return JSON.parse(stdout) as Report
}

/** Their names for each setting and number at once. */
export function whoTookPart({ comparisons }: SubjectResult): Record<string, string[]> {
  return Object.fromEntries(
    comparisons.map(({ setting, atOnce, contenders }) => [
      `${setting.replace(/(\d+)\.\d.*$/, '$1')} × ${atOnce}`,
      contenders.map(({ name }) => nameOnly(name)),
    ]),
  )
}

/** Without the version, which changes with every update. */
export function nameOnly(nameAndVersion: string): string {
  return nameAndVersion.replace(/ \d+\.\d.*$/, '')
}
