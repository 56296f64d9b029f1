// The tool of Prometheus that reads rules and queries, and plays cases against them.

import { spawnSync } from 'node:child_process'
import { need } from '../obtain/find.ts'

export interface Judged {
  readonly status: number | null
  readonly output: string
}

export function promtool(...args: readonly string[]): Judged {
  const { status, stdout, stderr, error } = spawnSync(need('prometheus').path, args, { encoding: 'utf8' })
  if (error) throw error
  return { status, output: stdout + stderr }
}
