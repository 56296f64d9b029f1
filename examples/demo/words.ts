/** The words of the demo: what is about to happen, what happened in a round, and what it means. */
import { stripVTControlCharacters } from 'node:util'
import { type Audit, audit } from './audit.ts'
import type { RoundEvent } from './events.ts'
import { amount } from './ledger.ts'
import { type Round, ttlMs } from './round.ts'
import { isColoured, type Paint, wrap } from './terminal.ts'
import { styles } from './timeline.ts'
import { pauseIn, turnsIn } from './turns.ts'

export function introduction(width: number, paint: Paint): string[] {
  const block = isColoured ? paint([...styles.workers[0]], '7  ') : '7██'
  const frozen = isColoured ? paint([...styles.frozen], '   ') : '░░░'
  const legend = [
    `${block} holds, token 7`,
    `${frozen} frozen`,
    `${paint([...styles.waiting], '···')} waits`,
    '✓ written',
    `${paint([...styles.alarm], '✗')} refused`,
    `${paint([...styles.alarm], '⊘')} written, then lost`,
  ]
  return [
    '',
    ...paragraph(
      `Three processes take turns under a lease: read the ledger's last line, add ${amount}, write the next.`,
      width,
    ),
    ...paragraph(
      `One is frozen in mid-turn. Its lease (${ttlMs / 1000} s) runs out, another takes over, and then it wakes up.`,
      width,
    ),
    '',
    ...paragraph('Look at ③: it wakes up and writes, because it cannot know that its turn is over.', width),
    '',
    ...flow(legend, width),
    '',
  ]
}

export function roundTitle(guarded: boolean, width: number, paint: Paint): string {
  const title = guarded ? 'With the guard' : 'Without the guard'
  return `  ${paint('bold', title)} ${paint('dim', '─'.repeat(Math.max(0, width - title.length - 5)))}`
}

/** The current state of the round in a line, for people who watch it live. */
export function statusOf(events: readonly RoundEvent[]): string {
  const { frozen, takeOver } = pauseIn(turnsIn(events))
  if (frozen?.stopped === undefined) return 'They take turns …'
  if (takeOver === undefined) return `${frozen.worker} is frozen, and its lease is running out …`
  if (frozen.stopped.untilMs === undefined) return `${takeOver.worker} has taken over …`
  return `${frozen.worker} is awake again …`
}

/** The story of the round at the marks of the time line, then the verdict on the ledger. */
export function account(round: Round, width: number, paint: Paint): string[] {
  return [
    ...stepsOf(round).flatMap((step) => paragraph(step, width, '  ')),
    '',
    ...verdict(audit(round), width, paint),
  ]
}

function stepsOf({ events }: Round): string[] {
  const { frozen, takeOver } = pauseIn(turnsIn(events))
  const line = frozen?.entry?.line
  if (frozen?.stopped === undefined || takeOver === undefined)
    return ['The pause did not come about as planned.']
  const afterSeconds = ((takeOver.fromMs - frozen.stopped.fromMs) / 1000).toFixed(1)
  return [
    `① ${frozen.worker} (token ${frozen.token}) has made sure of its lease and is about to write line ${line}. ` +
      'It is frozen (SIGSTOP).',
    `② ${afterSeconds} s later its lease, which counts from its last renewal, has run out. ${takeOver.worker} gets the next one (token ${takeOver.token}) ` +
      `and writes line ${takeOver.entry?.line}.`,
    frozen.outcome === 'refused'
      ? `③ ${frozen.worker} wakes up (SIGCONT) and tries to write line ${line}. The ledger refuses: by now it has seen ` +
        `token ${frozen.highest}, and ${frozen.token} is older. ${frozen.worker} takes a new turn.`
      : `③ ${frozen.worker} wakes up (SIGCONT) and writes line ${line} over ${takeOver.worker}'s. Nobody complains.`,
  ]
}

function verdict(result: Audit, width: number, paint: Paint): string[] {
  const { acknowledged, held, lost, balance, expectedBalance, intact } = result
  const headline = intact ? '✓ Nothing is lost.' : `✗ ${lostInWords(lost)}`
  const count =
    `"Written" was said ${acknowledged.length} times (${expectedBalance} in all); ` +
    `the ledger has ${held.length} lines and says ${balance}.`
  const [first = '', ...rest] = paragraph(`${headline} ${count}`, width, '  ')
  return [first.replace(headline, () => paint([intact ? 'green' : 'red', 'bold'], headline)), ...rest]
}

function lostInWords(lost: readonly string[]): string {
  if (lost.length === 0) return 'The ledger does not add up.'
  const owners = lost.map((entry) => `${entry.split(' ')[0]}'s ${amount}`)
  return `${owners.join(' and ')} ${lost.length === 1 ? 'is' : 'are'} gone.`
}

export function conclusion(
  passed: boolean,
  control: Round,
  guarded: Round,
  width: number,
  paint: Paint,
): string[] {
  const rule = `  ${paint('dim', '─'.repeat(width - 4))}`
  const [without, with_] = [audit(control), audit(guarded)]
  if (!passed) {
    const why =
      without.lost.length === 0
        ? 'VOID: the unguarded ledger lost nothing, so this run shows nothing. Please run it again.'
        : with_.intact
          ? 'VOID: nothing had to be refused in the guarded round, so this run shows nothing. Please run it again.'
          : 'FAILED: the guarded ledger does not hold what was acknowledged.'
    return [rule, ...paragraph(why, width).map((line) => paint(['red', 'bold'], line)), '']
  }
  const losses = `Lost without the guard: ${without.lost.length} of ${without.acknowledged.length}. Lost with it: none.`
  return [
    rule,
    paint(['green', 'bold'], `  ${losses}`),
    '',
    ...paragraph(
      'A lease tells its holder when to stop, and a frozen holder cannot listen. The guard is part of the ledger: ' +
        'it remembers the highest token, and refuses older ones in the same transaction as the write.',
      width,
    ),
    '',
    `  ${paint('dim', 'without')}   write(ledger)`,
    `  ${paint('dim', 'with   ')}   await guard.run(lease, (transaction) => write(transaction))`,
    '',
  ]
}

function paragraph(text: string, width: number, hanging = ''): string[] {
  return wrap(text, width - 4, hanging).map((line) => `  ${line}`)
}

/** Puts the items side by side, as many as fit on a line. */
function flow(items: readonly string[], width: number): string[] {
  const lengthOf = (text: string) => stripVTControlCharacters(text).length
  const lines: string[] = []
  for (const item of items) {
    const last = lines.at(-1)
    if (last !== undefined && lengthOf(last) + 3 + lengthOf(item) <= width - 2)
      lines[lines.length - 1] = `${last}   ${item}`
    else lines.push(`  ${item}`)
  }
  return lines
}
