/**
 * Common parts of the examples on PostgreSQL: the options, the database, the list of claims that are checked, and
 * the exit code.
 */
import { parseArgs } from 'node:util'
import { type Claims, limitTime, startClaims } from './claims.ts'
import { type Database, openDatabase } from './database.ts'

export interface Example {
  /** The folder under `examples/`. */
  readonly name: string
  /** A few lines about the example, for `--help`. */
  readonly about: string
  readonly play: (stage: Stage) => Promise<void>
}

export interface Stage extends Database, Claims {}

export async function runExample({ name, about, play }: Example): Promise<void> {
  const { url } = readOptions(usageOf(name, about))
  const { finish, ...claims } = startClaims()
  limitTime()

  try {
    await using database = await openDatabase(url)
    const playing = play({ ...database, ...claims })
    await Promise.race([playing, interruption()])
  } catch (error) {
    if (error instanceof Interrupted) process.exit(error.exitCode)
    console.error(error)
    console.error('\nThe example could not finish.')
    process.exit(1)
  }

  finish()
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
