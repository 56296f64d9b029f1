/** The result of a scenario, for people and for programs. */
import type { CheckResult } from '../check/index.ts'
import type { Incident } from './incidents.ts'
import type { Refusal, Round } from './round.ts'
import type { Result } from './scenario.ts'

const mostViolations = 3
const mostLines = 10

export function describe({ scenario, engine, verdict, reasons, control, controls, guarded }: Result): string {
  const again = controls > 1 ? [`(The control was run ${controls} times until it showed something.)`, ''] : []
  const why = reasons.length > 0 ? `: ${reasons.join('; ')}` : ''
  return [
    `${scenario.name} on ${engine.name}: ${scenario.clients.length} clients, TTL ${scenario.ttlMs} ms`,
    ...(control.broken === null ? [] : [`It breaks on purpose what the engine assumes: “${control.broken}”`]),
    ...(engine.protection === 'compare-and-set' ? [noGuard] : []),
    '',
    ...describeRound(control),
    ...again,
    ...(engine.published === undefined
      ? []
      : [`${engine.published} The control here has lost ${shareOf(control)}.`, '']),
    ...describeRound(guarded),
    `${verdict.toUpperCase()}${why}`,
  ].join('\n')
}

const noGuard =
  'The engine issues no fencing tokens, so there can be no guard: what the control loses, no lock of this kind can save. ' +
  'The second run compares in the resource itself.'

const titles: { readonly [Each in Round['protection']]: string } = {
  none: 'WITHOUT PROTECTION (control)',
  guard: 'WITH THE GUARD',
  'compare-and-set': 'WITH COMPARE-AND-SET IN THE RESOURCE',
}

function shareOf({ lost, acknowledged }: Round): string {
  return `${Math.round((100 * lost.length) / acknowledged.length)} %`
}

function describeRound(round: Round): string[] {
  const { protection, acknowledged, unknown, found, lost, incidents, refusals, history, checks } = round
  const held = checks.checks.filter(({ status }) => status === 'held')
  return [
    `${titles[protection]}, ${(round.tookMs / 1_000).toFixed(1)} s`,
    ...listed(mostLines, incidents.map(describeIncident)),
    `  acknowledged  ${acknowledged.length} updates${unknown.length > 0 ? `, and ${unknown.length} unknown` : ''}`,
    `  found         ${found.length}`,
    `  lost          ${lost.length}${lost.length > 0 ? ` (${shareOf(round)}): ${firstOf(mostLines, lost).join(', ')}` : ''}`,
    ...(round.timesTwoBelieved > 0 ? [`  believed      two at once, ${round.timesTwoBelieved} times`] : []),
    ...listed(mostLines, refusals.map(describeRefusal)),
    `  checked       ${history.operations.length} operations, ${history.beliefs.length} beliefs: ` +
      `${held.map(({ check, judged }) => `${check} (${judged})`).join(', ')} held`,
    ...checks.checks.flatMap(describeCheck),
    '',
  ]
}

function firstOf(most: number, all: readonly string[]): string[] {
  return all.length > most ? [...all.slice(0, most), `and ${all.length - most} more`] : [...all]
}

function listed(most: number, lines: readonly string[]): string[] {
  return firstOf(most, lines).map((line) => (line.startsWith(' ') ? line : `    ${line}`))
}

function describeIncident({ client, how, from, until }: Incident): string {
  const whose = client === undefined ? '' : `${client} `
  return `  happened      ${whose}${how}, ${seconds(from)} to ${seconds(until)}`
}

function describeRefusal({ client, access, at, stale }: Refusal): string {
  const why =
    stale === null
      ? `${access} of ${client} at ${seconds(at)}: the document had changed`
      : `FENCE_STALE: ${access} of ${client} at ${seconds(at)} with token ${stale.token}; highest was ${stale.highest}`
  return `  refused       ${why}`
}

function seconds(time: number): string {
  return `${(time / 1_000).toFixed(2)} s`
}

function describeCheck({ check, status, violations, notJudged, exception }: CheckResult): string[] {
  const expected = exception === null ? '' : ` (expected: ${exception.why})`
  const open = notJudged.map(({ why, times }) => `${why}${times > 1 ? ` (${times} times)` : ''}`).join('; ')
  return [
    ...(status === 'violated' ? [`  violated      ${check}${expected}`] : []),
    ...listed(
      mostViolations,
      violations.map(({ message }) => `    ${message.replaceAll('\n', '\n    ')}`),
    ),
    ...(status === 'not-judged' ? [`  not judged    ${check}: ${open}${expected}`] : []),
    ...(status !== 'not-judged' && open !== '' ? [`  in part       ${check}, but not where ${open}`] : []),
  ]
}

export function toJson({ scenario, engine, verdict, reasons, control, controls, guarded }: Result): string {
  const { name, clients, ttlMs } = scenario
  const whole = {
    scenario: name,
    engine: engine.name,
    clients,
    ttlMs,
    verdict,
    reasons,
    controls,
    rounds: [control, guarded].map(({ history: _history, ...round }) => round),
  }
  return JSON.stringify(whole, (_key, value) => (typeof value === 'bigint' ? value.toString() : value), 2)
}
