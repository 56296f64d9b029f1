/** The result of a scenario, for people and for programs. */
import type { CheckResult } from '../check/index.ts'
import type { Round } from './round.ts'
import type { Result } from './scenario.ts'

const mostShown = 3

export function describe({ scenario, verdict, reasons, control, controls, guarded }: Result): string {
  const again = controls > 1 ? [`(The control was run ${controls} times until it lost something.)`, ''] : []
  const why = reasons.length > 0 ? `: ${reasons.join('; ')}` : ''
  return [
    `${scenario.name} on sqlite: ${scenario.clients.length} clients, TTL ${scenario.ttlMs} ms`,
    '',
    ...describeRound(control),
    ...again,
    ...describeRound(guarded),
    `${verdict.toUpperCase()}${why}`,
  ].join('\n')
}

function describeRound(round: Round): string[] {
  const { guarded, acknowledged, unknown, found, lost, stops, refusals, history } = round
  const at = (time: number) => `${(time / 1_000).toFixed(2)} s`
  const list = (entries: readonly string[]) => (entries.length > 0 ? `: ${entries.join(', ')}` : '')
  return [
    `${guarded ? 'WITH THE GUARD' : 'WITHOUT THE GUARD (control)'}, ${(round.tookMs / 1_000).toFixed(1)} s`,
    ...stops.map(({ client, from, until }) => `  stopped       ${client}, ${at(from)} to ${at(until)}`),
    `  acknowledged  ${acknowledged.length} updates${unknown.length > 0 ? `, and ${unknown.length} unknown` : ''}`,
    `  found         ${found.length}`,
    `  lost          ${lost.length}${list(lost)}`,
    ...refusals.map(
      ({ client, access, token, highest, at: when }) =>
        `  refused       FENCE_STALE: ${access} of ${client} at ${at(when)} with token ${token}; highest was ${highest}`,
    ),
    `  checked       ${history.operations.length} operations, ${history.beliefs.length} beliefs: ` +
      `${round.checks.checks
        .filter(({ status }) => status === 'held')
        .map(({ check, judged }) => `${check} (${judged})`)
        .join(', ')} held`,
    ...round.checks.checks.flatMap(describeCheck),
    '',
  ]
}

function describeCheck({ check, status, violations, notJudged, exception }: CheckResult): string[] {
  const expected = exception === null ? '' : ` (expected: ${exception.why})`
  const open = notJudged.map(({ why, times }) => `${why}${times > 1 ? ` (${times} times)` : ''}`).join('; ')
  return [
    ...(status === 'violated' ? [`  violated      ${check}${expected}`] : []),
    ...violations.slice(0, mostShown).map(({ message }) => `    ${message.replaceAll('\n', '\n    ')}`),
    ...(violations.length > mostShown ? [`    and ${violations.length - mostShown} more`] : []),
    ...(status === 'not-judged' ? [`  not judged    ${check}: ${open}${expected}`] : []),
    ...(status !== 'not-judged' && open !== '' ? [`  in part       ${check}, but not where ${open}`] : []),
  ]
}

export function toJson({ scenario, verdict, reasons, control, controls, guarded }: Result): string {
  const { name, clients, ttlMs } = scenario
  const whole = {
    scenario: name,
    backend: 'sqlite',
    clients,
    ttlMs,
    verdict,
    reasons,
    controls,
    rounds: [control, guarded].map(({ history: _history, ...round }) => round),
  }
  return JSON.stringify(whole, (_key, value) => (typeof value === 'bigint' ? value.toString() : value), 2)
}
