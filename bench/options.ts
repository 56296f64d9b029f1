/** The command line. */
import { tmpdir } from 'node:os'
import { parseArgs } from 'node:util'
import { fewestRounds } from './against/statistics.ts'

export interface Options {
  readonly names: readonly string[]
  /** The commit to compare with, as git understands it. */
  readonly against?: string
  /** The round trip of a network between client and servers. */
  readonly rttMs?: number
  readonly rounds: number
  readonly seconds?: number
  readonly folder: string
  readonly save: boolean
  readonly json: boolean
}

export function usageOf(available: readonly string[]): string {
  return `npm run bench -- [options] backend…

Pairs of acquire and release a second, one after another and many at once, and hand-overs under contention,
next to the raw statements in the same run. Backends: ${available.join(', ')}.

  --against ref    compare Holdfast here with Holdfast at another commit, in interleaved rounds, and nothing else;
                   exit code 0: the median of the ratios new/old is at least 0.95 everywhere; 1: it is not;
                   3: void, because a 95 % interval reaches further than 10 % from its median
  --rtt 2          a network between client and server: a round trip of so many ms, for every library alike
  --seconds 1      how long each measurement lasts (default: 1, or what suits the number of contenders;
                   with --against 0.25)
  --rounds 5       how often; medians are reported (with --against 15, and not fewer)
  --folder path    where files are made (default: the system's temporary folder)
  --save           also write bench/results/<backend>.md, .json and .svg
  --json           print JSON instead of tables
  --help           this text`
}

/** `help`, or an error for whom to tell what is wrong. */
export function readOptions(args: readonly string[], available: readonly string[]): Options | 'help' {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      against: { type: 'string' },
      rtt: { type: 'string' },
      seconds: { type: 'string' },
      rounds: { type: 'string' },
      folder: { type: 'string', default: tmpdir() },
      save: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return 'help'
  const unknown = positionals.filter((name) => !available.includes(name))
  if (unknown.length > 0)
    throw new Error(`There is no ${unknown.join(', ')}; there are: ${available.join(', ')}.`)
  if (positionals.length === 0) throw new Error(`Name at least one backend: ${available.join(', ')}.`)

  const { against, folder, save, json } = values
  if (against !== undefined && save) throw new Error('--save is not for --against: print --json to a file.')
  const usualRounds = against === undefined ? 5 : fewestRounds
  const rounds = values.rounds === undefined ? usualRounds : Math.ceil(positive('rounds', values.rounds))
  if (against !== undefined && rounds < fewestRounds)
    throw new Error(`--against needs at least ${fewestRounds} rounds, not ${rounds}.`)
  return {
    names: [...new Set(positionals)],
    ...(against !== undefined && { against }),
    ...(values.rtt !== undefined && { rttMs: positive('rtt', values.rtt) }),
    rounds,
    ...(values.seconds !== undefined && { seconds: positive('seconds', values.seconds) }),
    folder,
    save,
    json,
  }
}

function positive(option: string, text: string): number {
  const value = Number(text)
  if (!(value > 0 && value < 3_600)) throw new Error(`--${option} must be a positive number, not ${text}.`)
  return value
}
