/** Coverage that a batch of runs must reach to mean anything: runs in which nothing happens show nothing. */
import type { BatchResult } from './batch.ts'
import { faultKinds } from './faults.ts'

/** For every thousand runs at least this often. */
const wanted: Readonly<Record<string, number>> = {
  ...Object.fromEntries(faultKinds.map((kind) => [`fault ${kind}`, 50])),
  grants: 50_000,
  'hand-overs': 5_000,
  'guard accepted': 50_000,
  'guard refused': 100,
  // The unguarded control must lose updates, or the guard has had nothing to do.
  'lost update control': 100,
  'read twice': 2_000,
  'kept lock-delay': 100,
  'kept hold-at-least': 500,
  'connection refused': 1_000,
  'answered within enqueue': 40,
  'history linearizability': 10_000,
  'history G8': 3_000,
  'history G13': 5_000,
  'batch of several': 5_000,
  'unsynced writes lost': 100,
  'ending expired': 500,
  'ending abandoned': 2_000,
  jeopardy: 500,
  'renewal failed': 2_000,
  'release failed': 200,
  'paused noticed': 200,
  'late confirmation': 50,
  'granted by keep-alive': 100,
  'unlisted claim': 100,
  'unresolved for one TTL': 20,
  'dual owner suspected': 20,
  'ended aborted': 500,
  'ended ACQUIRE_TIMEOUT': 2_000,
  'ended BACKEND_UNAVAILABLE': 1_000,
  'ended LEASE_LOST': 100,
  'ended CLOSED': 50,
  ...Object.fromEntries(
    [
      'expired',
      'unreachable',
      'session-gone',
      'deleted',
      'taken-over',
      'force-released',
      'max-hold',
      'closed',
    ].map((reason) => [`lost ${reason}`, 10]),
  ),
}

/** Events that happened too seldom for a thousand runs (default: runs of `locks`); empty if everything happened often enough. */
export function notCovered({ counts, runs }: BatchResult, often = wanted): readonly string[] {
  return Object.entries(often).flatMap(([what, perThousand]) => {
    const least = Math.floor((perThousand * runs) / 1_000)
    const count = counts[what] ?? 0
    return count >= least ? [] : [`${what}: ${count}, at least ${least} wanted`]
  })
}

/** The totals in a few lines, for people. */
export function describeTotals({ counts, runs, runsByMode, events, cpuMs }: BatchResult): string {
  const byMode = Object.entries(runsByMode).map(([mode, count]) => `${count} ${mode}`)
  const sum = (prefix: string) =>
    Object.entries(counts).reduce(
      (total, [what, count]) => (what.startsWith(prefix) ? total + count : total),
      0,
    )
  const listed = (prefix: string) =>
    Object.entries(counts)
      .filter(([what]) => what.startsWith(prefix))
      .map(([what, count]) => `${what.slice(prefix.length)} ${count}`)
      .join(', ')
  return [
    `${runs} runs of 120 simulated seconds (${byMode.join(', ')}), ${events} events, ${(cpuMs / runs).toFixed(1)} ms of CPU each`,
    `  operations ${sum('operation ')}: ${listed('operation ')}`,
    `  requests ${sum('request ')}, grants ${counts.grants}, hand-overs ${counts['hand-overs']}`,
    `  leases lost ${sum('lost ') - sum('lost update ')}: ${listed('lost ')}`,
    `  guard accepted ${counts['guard accepted']}, refused ${counts['guard refused']}; the unguarded control lost ${counts['lost update control']} updates`,
    `  faults ${sum('fault ')}: ${listed('fault ')}`,
  ].join('\n')
}
