// docs/cli.md and docs/advise.md, from the commands' own definitions and the table of `holdfast advise`.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { engines, fits, guarantees, noLockReplaces, ttlAdvice } from '../../packages/cli/src/advice.data.ts'
import { program } from '../../packages/cli/src/program.ts'
import { root } from '../lib/repository.ts'

/** The pages by their paths. */
export function pages(): ReadonlyMap<string, string> {
  return new Map([
    ['docs/cli.md', commandLine()],
    ['docs/advise.md', advice()],
  ])
}

const generated = (by: string) => `<!-- Written by \`npm run docs:cli\` from ${by}. -->`

function commandLine(): string {
  const holdfast = program({ version: '', exitWith: () => {} })
  const sections = holdfast.commands.map((command) => {
    const help = helpOf(command)
    return `## ${command.name()}\n\n${capital(command.summary())}.\n\n\`\`\`\n${help}\n\`\`\``
  })
  return [
    '# Command line',
    generated('packages/cli/src/program.ts'),
    `${holdfast.description()} The package \`holdfast\` has the command; it needs nothing beside it but the client of your engine, and \`croner\` for \`schedule\`.`,
    '```sh\nnpm install ./holdfast-*.tgz                                 # made as the README says under Install\nnpx holdfast run nightly-report --wait 0 -- ./report.sh     # one of twenty replicas runs it\nnpx holdfast ls                                             # who holds what, since when, who waits\nnpx holdfast doctor redis://cache:6379                      # is this engine safe for locks?\n```',
    'The engine is `--url`, or `HOLDFAST_URL`, in the form of [`openLocker`](tour.md). With neither it is a SQLite file of your own ' +
      '(`$XDG_STATE_HOME/holdfast/locks.db`), which serves this user on this machine only. There is no config file. ' +
      'A command always stands after `--`, so its options are never taken for options of `holdfast`.',
    table(['exit code', 'meaning'], exitCodes),
    ...sections,
    limits,
    '',
  ]
    .join('\n\n')
    .replace(/\n+$/, '\n')
}

const exitCodes: readonly (readonly string[])[] = [
  ['the command’s own; 128 + n if signal n ended it', 'the command ran to its end'],
  ['1', 'nothing was found: no leader, no such holder; `doctor`: a warning'],
  ['2', '`doctor`: a danger'],
  ['64', 'bad usage, a bad URL, refused by `--require`'],
  ['69', 'the engine cannot be reached, or refuses us'],
  ['70', 'a failure that has no other code'],
  ['75 (`-E` changes it)', 'busy, or not granted within `--wait`; the queue is full'],
  ['79', 'the lease was lost, and the command was stopped'],
  ['126, 127', 'the command cannot be run, was not found'],
]

const limits = `## How a command is stopped

The command gets SIGTERM when only \`--stop-in\` is left of \`--max-hold\`, or of a lease that was not renewed. It gets SIGKILL when nearly nothing is
left, also if the engine has come back meanwhile. So it has ended before the engine can give the name away by expiry (G3). \`holdfast\` learns of a force
release at the next renewal: then it sends SIGTERM, and SIGKILL after \`--stop-in\`. Signals to \`holdfast\` go to the command; before the grant they end
the wait. A signal that comes a second or more after the first one ends \`holdfast\` at once. If \`holdfast\` itself is killed, a watchdog kills the command.

Without a terminal on stdin the command has a session of its own, and its whole process group is signalled. With a terminal the command stays in the
foreground group, so that Ctrl-C and job control work, and the command alone is signalled. Then SIGINT and SIGQUIT are not passed on, because the kernel
sends them to the whole group: \`kill -INT\` of \`holdfast\` from elsewhere does not reach the command. Send SIGTERM.

Limits. In these cases only the fence protects. Pass \`HOLDFAST_FENCE\` on to a [guard](guards.md), signed with \`--sign-key-file\` if strangers can reach it.

- A grandchild that calls \`setsid\` is not signalled. On a terminal no grandchild is, so what the command has started may go on after a loss.
- A command that takes other rights, such as \`sudo\`, cannot be signalled. \`holdfast\` says so, and waits for it. Call \`sudo holdfast run … -- command\`.
- A \`holdfast\` that is itself stopped (SIGSTOP, Ctrl-Z) cannot stop its command.
- A SIGKILL of \`holdfast\` while it starts the command may come before the watchdog knows the command, which then goes on.
- As the first process of a container \`holdfast\` does not collect orphans of the command (\`docker run --init\` does).

\`npx\` gets the signals in place of \`holdfast\`: in units and containers call \`node_modules/.bin/holdfast\`. What a command leaves in the background after
a normal end goes on, without the lock. \`holdfast\` runs on Linux and macOS; the watchdog needs \`/bin/sh\`.

Left out on purpose: \`acquire\` and \`release\` as two commands (wrap the script in \`run\`), and completion for shells.`

function advice(): string {
  return [
    '# Do you need a lock?',
    generated('packages/cli/src/advice.data.ts'),
    '`holdfast advise` asks, and answers from this table. With `--for`, `--purpose`, `--reach`, `--engine`, `--rate`, `--hold` and `--pause` it answers at once.',
    '## What fits',
    table(
      ['you have', '`--for`', 'lock', 'take', 'because'],
      fits.map(({ key, question, lock, answer, why, page }) => [
        question,
        `\`${key}\``,
        lock,
        `[${answer}](${page})`,
        why,
      ]),
    ),
    codeBlock('sql', '--'),
    codeBlock('sh', '#'),
    codeBlock('ts', '//', given),
    '## Engines',
    table(
      ['`--engine`', 'fenced', 'reach', 'hand-over, about', 'mind'],
      engines.map(({ key, isFenced, reach, handOverMs, note, not }) => [
        `\`${key}\``,
        isFenced ? 'yes' : 'no',
        reach,
        `${handOverMs} ms`,
        not === undefined ? note : `${note} ${not}`,
      ]),
    ),
    'One name serves `1000 / (hold + hand-over)` holders a second, both in milliseconds, on any engine.',
    `${ttlAdvice} More in [production](production.md).`,
    '## What a lock gives',
    table(
      ['case', 'it gives'],
      [
        ['efficiency', guarantees.efficiency],
        ['correctness, with a guard', guarantees.correctness],
        ['without a guard', guarantees.noGuard],
        ['without fencing tokens', guarantees.noFence],
        ['on one machine', guarantees.machine],
        ['over several regions', guarantees.regions],
      ],
    ),
    '## What no lock replaces',
    noLockReplaces.map((text) => `- ${text}`).join('\n'),
    '',
  ]
    .join('\n\n')
    .replace(/\n+$/, '\n')
}

/** What is yours in the code of the table, so that the compiler sees the rest of it. */
const given = `import type { Locker } from 'holdfast'
import { optimisticUpdate } from 'holdfast/lockfree'
import { postgresIdempotent, postgresJobs } from 'holdfast/lockfree/postgres'
import { partitions } from 'holdfast/recipes/partitions'
import type { Redis } from 'ioredis'
import pg from 'pg'

const idempotent = postgresIdempotent({ client: new pg.Pool() })
const jobs = postgresJobs<{ to: string }>({ client: new pg.Pool(), queue: 'mail' })
declare const locker: Locker<'fenced'>
declare const redis: Redis
declare const key: string
declare const order: { amount: number }
declare function read(): Promise<{ units: number; version: number }>
declare function writeIfTheVersionIsTheSame(row: { units: number; version: number }): Promise<boolean>
declare function charge(): Promise<string>
declare function send(mail: { to: string }): Promise<void>
declare function start(partition: number): Promise<void>
declare function stop(partition: number): Promise<void>
`

/** The code of the table in one language. */
function codeBlock(language: 'sql' | 'sh' | 'ts', comment: string, head?: string): string {
  const those = fits.filter(({ code }) => languageOf(code) === language)
  const lines = those.map(({ key, code }) => `${comment} ${key}\n${code}`)
  return [`\`\`\`${language}`, ...(head === undefined ? [] : [head]), ...lines, '```'].join('\n')
}

function languageOf(code: string): 'sql' | 'sh' | 'ts' {
  if (/^[A-Z]/.test(code)) return 'sql'
  return code.startsWith('holdfast ') ? 'sh' : 'ts'
}

function helpOf(command: ReturnType<typeof program>): string {
  let help = ''
  command.configureOutput({
    writeOut: (text) => (help += text),
    getOutHelpWidth: () => 120,
    getOutHasColors: () => false,
  })
  command.outputHelp()
  return help.trimEnd()
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)].join('\n')
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

if (import.meta.main) {
  for (const [path, text] of pages()) {
    writeFileSync(join(root, path), text)
    console.error(`docs:cli: wrote ${path}`)
  }
}
