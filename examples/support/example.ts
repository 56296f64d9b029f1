/**
 * What the examples on PostgreSQL have in common: the options, the database, the list of claims that are checked, and
 * the exit code.
 */
import { parseArgs } from 'node:util'
import { type Database, openDatabase } from './database.ts'

export interface Example {
  /** The folder under `examples/`. */
  readonly name: string
  /** What it shows, in a few lines, for `--help`. */
  readonly about: string
  readonly play: (stage: Stage) => Promise<void>
}

export interface Stage extends Database {
  say(text: string): void
  /** Something that must hold. */
  check(claim: string, holds: boolean): void
  /** A control, without the protection, has to lose. If it did not, the run shows nothing. */
  mustLose(claim: string, loses: boolean): void
}

const limitMs = 120_000

export async function runExample({ name, about, play }: Example): Promise<void> {
  const { url } = readOptions(usageOf(name, about))
  const verdict = { checked: 0, broken: 0, isVoid: false }
  setTimeout(() => {
    console.error('It took too long. The machine may be busy; try again.')
    process.exit(1)
  }, limitMs).unref()

  try {
    await using database = await openDatabase(url)
    const playing = play({
      ...database,
      say: (text) => console.log(text),
      check(claim, holds) {
        verdict.checked++
        if (!holds) verdict.broken++
        console.log(`  ${holds ? '✓' : '✗'} ${claim}`)
      },
      mustLose(claim, loses) {
        if (!loses) verdict.isVoid = true
        console.log(`  ${loses ? '✓' : '∅'} control: ${claim}`)
      },
    })
    await Promise.race([playing, interruption()])
  } catch (error) {
    if (error instanceof Interrupted) process.exit(error.exitCode)
    console.error(error)
    console.error('\nThe example could not finish.')
    process.exit(1)
  }

  const { checked, broken, isVoid } = verdict
  if (broken > 0) console.log(`\n${broken} of ${checked} claims do not hold.`)
  else if (isVoid) console.log('\nVoid: a control did not lose, so there was nothing to protect against.')
  else console.log(`\nAll ${checked} claims hold.`)
  process.exitCode = broken > 0 || isVoid ? 1 : 0
}

class Interrupted extends Error {
  readonly exitCode: number

  constructor(exitCode: number) {
    super('interrupted')
    this.exitCode = exitCode
  }
}

/** So that an interrupted example leaves nothing behind on a server that is not its own. */
function interruption(): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>()
  process.once('SIGINT', () => reject(new Interrupted(130)))
  process.once('SIGTERM', () => reject(new Interrupted(143)))
  return promise
}

function usageOf(name: string, about: string): string {
  return `node examples/${name}/main.ts [options]

${about}

  --url postgres://…    a server on which it may create a database for the run. By default the one in
                        HOLDFAST_TEST_POSTGRES_URL, or else one that is started for it
  --help                this text

Exits with 0 if everything that it claims holds, and the controls without protection lose.`
}

function readOptions(usage: string): { url?: string } {
  try {
    const { values } = parseArgs({ options: { url: { type: 'string' }, help: { type: 'boolean' } } })
    if (values.help) {
      console.log(usage)
      process.exit(0)
    }
    return values.url === undefined ? {} : { url: values.url }
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
