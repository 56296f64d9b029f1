/** The commands with their flags and examples. Help and `docs/cli.md` are made from this. */
import { Argument, Command, InvalidArgumentError, Option } from 'commander'
import { durationMs } from './durations.ts'
import { EXIT, Exit, usageError } from './exits.ts'

export interface ProgramHooks {
  readonly version: string
  readonly exitWith: (code: number) => void
}

function duration(text: string): number {
  const ms = durationMs(text)
  if (ms === undefined) throw new InvalidArgumentError('Write a duration as 500ms, 30s, 5m, 2h or 0.')
  return ms
}

function waiting(text: string): number {
  return text === 'forever' ? Number.POSITIVE_INFINITY : duration(text)
}

const integer = (min: number, max: number) => (text: string) => {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new InvalidArgumentError(`Write a whole number from ${min} to ${max}.`)
}

function token(text: string): bigint {
  if (/^[1-9]\d{0,18}$/.test(text)) return BigInt(text)
  throw new InvalidArgumentError('Write the token as a number.')
}

const all = (text: string, before: readonly string[] = []) => [...before, text]

/** An option: its flags, what it is for, and what else commander should know of it. */
type Flag = readonly [flags: string, what: string, set?: (option: Option) => Option]

const read =
  <T>(parse: (text: string, before: T) => T) =>
  (option: Option) =>
    option.argParser(parse)
const time = (text: string, parse = duration) => {
  return (option: Option) => option.argParser(parse).default(parse(text), text)
}
const needed = (option: Option) => option.makeOptionMandatory()
const oneOf =
  (...choices: readonly string[]) =>
  (option: Option) =>
    option.choices(choices)

const permits = read(integer(1, 1_000_000))
const json: Flag = ['--json', 'JSON lines, also on a terminal']
const verbose: Flag = ['--verbose', 'show the stack of an error']
const engineFlags: readonly Flag[] = [
  ['--url <url>', 'the engine, such as redis://cache:6379; otherwise HOLDFAST_URL'],
  ['--require <what>', 'refuse an engine that is not `fenced` or `cluster`; may be given twice', read(all)],
  verbose,
]
const lookFlags = [json, ...engineFlags]
const allowUnfenced: Flag = ['--allow-unfenced', 'allow an engine without fencing tokens']
const note: Flag = ['--note <text>', 'shown to operators; default the file of the command']
const holdFlags: readonly Flag[] = [
  ['--ttl <time>', 'how long the name stays taken when this machine dies; default 15s', read(duration)],
  [
    '--stop-in <time>',
    'how much of the lease is left when the command gets SIGTERM; default 5s, and at most a third of --ttl and of --max-hold',
    read(duration),
  ],
  [
    '--sign-key-file <path>',
    'sign HOLDFAST_FENCE: a file with the key’s id and its secret in base64; needs a fenced engine',
  ],
  ['--pass-api-token', 'leave HOLDFAST_API_TOKEN in the environment of the command'],
  ...engineFlags,
]

interface Definition {
  readonly name: string
  readonly summary: string
  readonly description?: string
  readonly arguments: readonly (readonly [name: string, what: string])[]
  readonly options: readonly Flag[]
  readonly examples: readonly string[]
  // biome-ignore lint/suspicious/noExplicitAny: commander hands over the arguments, and then the options, of each command
  readonly act: (...given: any[]) => Promise<number>
}

const NAME = ['name', 'what is locked, such as nightly-report or account/42'] as const
const PREFIX = ['[prefix]', 'the names that start with it; default all'] as const
const COMMAND = ['command...', 'the command and its arguments; always after --'] as const

const definitions: readonly Definition[] = [
  {
    name: 'run',
    summary: 'wait for a name, hold it, run a command, release it',
    description:
      'The command gets HOLDFAST_NAME, and on a fenced engine HOLDFAST_FENCING_TOKEN and HOLDFAST_FENCE. It is stopped before ' +
      'another can have the name. Ends with the code of the command, or 128 + n if signal n ended it.',
    arguments: [NAME, COMMAND],
    options: [
      ['--wait <time>', 'how long to wait for it; 0 tries once, forever is allowed', time('30s', waiting)],
      ['--shared', 'hold it together with other readers'],
      ['--capacity <permits>', 'a semaphore with this many permits', permits],
      ['--weight <permits>', 'how many of them to take; default 1', permits],
      ['--hold-at-least <time>', 'keep the name closed for this long after the grant', read(duration)],
      ['--max-hold <time>', 'end the command in this time; SIGTERM comes --stop-in before', read(duration)],
      ['-E, --busy-code <code>', 'exit code if the name was not granted; default 75', read(integer(0, 255))],
      note,
      ...holdFlags,
    ],
    examples: [
      'holdfast run nightly-report --wait 0 -- ./report.sh',
      'holdfast run deploy --wait 10m --max-hold 1h -- make deploy',
      'holdfast run downloads --capacity 3 --wait forever -- ./fetch.sh',
    ],
    act: async (name, command, options) => (await import('./run.ts')).run(name, command, options),
  },
  {
    name: 'elect',
    summary: 'run a command on one of all machines, as long as it leads',
    description:
      'Campaigns, runs the command while it leads, stops it before leadership is given up, and campaigns again after a loss. Ends ' +
      'when the command ends by itself.',
    arguments: [NAME, COMMAND],
    options: [
      ['--value <text>', 'what `holdfast leader` shows, such as an address'],
      allowUnfenced,
      note,
      ...holdFlags,
    ],
    examples: ['holdfast elect planner --value "$HOSTNAME:8080" -- ./planner'],
    act: async (name, command, options) => (await import('./elect.ts')).elect(name, command, options),
  },
  {
    name: 'leader',
    summary: 'show who leads, its token and its value',
    description: 'Ends with 1 if nobody leads.',
    arguments: [NAME],
    options: lookFlags,
    examples: ['holdfast leader planner'],
    act: async (name, options) => (await import('./elect.ts')).leader(name, options),
  },
  {
    name: 'schedule',
    summary: 'run a command at certain times, on one of all machines',
    description:
      'Stays in the foreground. Needs the package croner beside holdfast. The command also gets HOLDFAST_TICK.',
    arguments: [NAME, COMMAND],
    options: [
      ['--cron <expression>', 'required: when, such as "0 3 * * *"', needed],
      ['--tz <zone>', 'the zone of the expression, such as Europe/Berlin; default that of the machine'],
      [
        '--policy <policy>',
        'skip: no tick starts twice; rerun: a tick starts again until it has ended',
        (option) => oneOf('skip', 'rerun')(option).default('skip'),
      ],
      allowUnfenced,
      ...holdFlags,
    ],
    examples: ["holdfast schedule report --cron '0 3 * * *' --tz Europe/Berlin -- ./report.sh"],
    act: async (name, command, options) => (await import('./schedule.ts')).schedule(name, command, options),
  },
  {
    name: 'ls',
    summary: 'show who holds what, since when, and who waits',
    arguments: [PREFIX],
    options: lookFlags,
    examples: ['holdfast ls', 'holdfast ls account/ | jq -r .name'],
    act: async (prefix, options) => (await import('./listing.ts')).ls(prefix, options),
  },
  {
    name: 'show',
    summary: 'say what is going on with a name: holders, waiters, data',
    arguments: [NAME],
    options: lookFlags,
    examples: ['holdfast show nightly-report'],
    act: async (name, options) => (await import('./listing.ts')).show(name, options),
  },
  {
    name: 'watch',
    summary: 'follow what happens to names',
    description: 'Draws the table of ls again after changes; in a pipe it prints each event as it comes.',
    arguments: [PREFIX],
    options: lookFlags,
    examples: ['holdfast watch', 'holdfast watch account/ --json'],
    act: async (prefix, options) => (await import('./listing.ts')).watch(prefix, options),
  },
  {
    name: 'release',
    summary: 'end one holder, as an operator',
    description:
      'Ends exactly the holder that it has shown. Asks on a terminal, and wants --yes elsewhere. Ends with 1 if there is no such holder.',
    arguments: [NAME],
    options: [
      [
        '--token <token>',
        'the holder with this fencing token; this or --id is required',
        (option) => option.argParser(token).conflicts('id'),
      ],
      ['--id <id>', 'the holder with this id, which `holdfast show` prints'],
      ['--reason <text>', 'required: why; it is recorded, and told to the holder', needed],
      ['--yes', 'do not ask'],
      ...engineFlags,
    ],
    examples: ["holdfast release nightly-report --token 4711 --reason 'host is gone, ticket 1234'"],
    act: async (name, options) => (await import('./release.ts')).release(name, options),
  },
  {
    name: 'doctor',
    summary: 'say whether an engine and this machine are safe for locks',
    description: 'Ends with 1 if there is a warning, and with 2 if there is a danger.',
    arguments: [['[url]', 'the engine; otherwise --url or HOLDFAST_URL']],
    options: lookFlags,
    examples: ['holdfast doctor redis://cache:6379', 'holdfast doctor --json | jq -r .code'],
    act: async (url, options) => (await import('./doctor.ts')).doctor(url, options),
  },
  {
    name: 'advise',
    summary: 'say whether a lock is needed at all, and which one',
    description: 'Asks on a terminal; with --for it answers at once. docs/advise.md has the whole table.',
    arguments: [],
    options: [
      ['--for <what>', 'what it is for; a wrong value lists them'],
      ['--purpose <purpose>', 'what two at once would cost', oneOf('efficiency', 'correctness')],
      ['--reach <reach>', 'where they run', oneOf('machine', 'region', 'regions')],
      ['--engine <name>', 'what runs already; a wrong value lists them'],
      ['--rate <grants>', 'grants a second of one name', read(integer(1, 1_000_000))],
      ['--hold <time>', 'how long one holds it', read(duration)],
      ['--pause <time>', 'the longest pause that a holder should survive', read(duration)],
      json,
      verbose,
    ],
    examples: ['holdfast advise', 'holdfast advise --for job --engine postgres'],
    act: async (options) => (await import('./advise.ts')).advise(options),
  },
  {
    name: 'fence-proxy',
    summary: 'keep stale holders from a service that cannot be changed',
    description:
      'Forwards a request unless a newer fence has come before (docs/guards/proxy.md). The service must be reachable through the ' +
      'proxy alone. A path with a semicolon in a segment that --name uses is refused.',
    arguments: [['target', 'the service, such as http://127.0.0.1:9000']],
    options: [
      ['--marks <file>', 'where the highest tokens are kept', needed],
      [
        '--name <template>',
        'the name that a request is about; {2} is the second segment of its path',
        needed,
      ],
      [
        '--key-file <path>',
        'a key of signed fences, as for run --sign-key-file; may be given twice',
        read(all),
      ],
      ['--unsigned', 'trust unsigned fences, where strangers cannot reach the proxy'],
      ['--listen <host:port>', 'where it listens', (option) => option.default('127.0.0.1:8080')],
      [
        '--reads <reads>',
        'whether GET, HEAD and OPTIONS need a fence',
        (option) => oneOf('fenced', 'open')(option).default('fenced'),
      ],
      ['--limit <time>', 'how long the service may take for an answer', time('30s')],
      ['--quarantine <time>', 'how much longer a request without an answer may take effect', time('60s')],
      verbose,
    ],
    examples: [
      "holdfast fence-proxy http://127.0.0.1:9000 --marks fences.db --name 'sku:{2}' --key-file key",
    ],
    act: async (target, options) => (await import('./fence-proxy.ts')).fenceProxy(target, options),
  },
  {
    name: 'server',
    summary: 'start the lock server, the package holdfast-server',
    arguments: [['[arguments...]', 'its own arguments, after --']],
    options: [verbose],
    examples: ['holdfast server -- --help'],
    act: async (given) => (await import('./server.ts')).server(given),
  },
]

const EXIT_CODES = `Exit codes:
  the command's own, or 128 + n if signal n ended it
  64   bad usage, a bad URL, or refused by --require
  69   the engine cannot be reached, or refuses us
  70   a failure that has no other code
  75   busy, or not granted within --wait (-E changes it)
  79   the lease was lost, and the command was stopped
  126  the command cannot be run
  127  the command was not found`

export function program({ version, exitWith }: ProgramHooks): Command {
  const holdfast = new Command('holdfast')
    .description('Locks for commands, over the engine that you already run.')
    .helpCommand(false)
    .version(version)
    .addHelpText('after', `\n${EXIT_CODES}`)
  for (const definition of definitions) holdfast.addCommand(commandOf(definition, exitWith))
  for (const command of [holdfast, ...holdfast.commands]) strict(command)
  return holdfast
}

function commandOf(definition: Definition, exitWith: ProgramHooks['exitWith']): Command {
  const { name, summary, description, options, examples, act } = definition
  const command = new Command(name).summary(summary).description(description ?? `${summary}.`)
  for (const [argument, what] of definition.arguments)
    command.addArgument(new Argument(/^[[<]/.test(argument) ? argument : `<${argument}>`, what))
  for (const [flags, what, set = (option: Option) => option] of options)
    command.addOption(set(new Option(flags, what)))
  command.addHelpText('after', `\nExamples:\n${examples.map((example) => `  ${example}`).join('\n')}`)
  const takesCommand = definition.arguments.includes(COMMAND)
  if (takesCommand) command.usage(command.usage().replace('<command...>', '-- <command...>'))
  return command.action(async (...given) => {
    // Without --, an option that is meant for the command, such as --url, would be taken for one of holdfast.
    if (takesCommand && process.argv.at(-given[1].length - 1) !== '--')
      throw usageError(`Write -- in front of the command: holdfast ${name} <name> -- <command>.`)
    // The command itself comes last, after the options.
    exitWith(await act(...given.slice(0, -1)))
  })
}

/** Bad usage is one sentence and one code. */
function strict(command: Command): void {
  command.configureOutput({ outputError: () => {} })
  command.exitOverride(({ exitCode, code, message }) => {
    if (exitCode === 0) throw new Exit(0)
    // It was called without a command, and the help has been shown.
    if (code === 'commander.help') throw new Exit(EXIT.usage)
    const sentence = message.replace(/^error: /, '').replaceAll(/\s*\n\s*/g, ' ')
    throw new Exit(
      EXIT.usage,
      `${sentence}${/[.?)]$/.test(sentence) ? '' : '.'} See holdfast ${nameOf(command)}--help.`,
    )
  })
}

function nameOf(command: Command): string {
  return command.parent === null ? '' : `${command.name()} `
}
