/** Tables that are made at the first use, and statements on them. */
import {
  ensureTables,
  type Parameter,
  type PostgresDatabase,
  type Row,
  type SqlRunner,
  type TablePart,
  typedStep,
} from '../../clients/postgres/index.ts'

export class Part {
  readonly #database: PostgresDatabase
  readonly #part: TablePart
  readonly #schema: string
  readonly #create: boolean
  #origin: Promise<string> | undefined

  constructor(database: PostgresDatabase, part: TablePart, schema: string, create: boolean) {
    this.#database = database
    this.#part = part
    this.#schema = schema
    this.#create = create
  }

  /** Made once with the tables; copies and backups carry it along. */
  origin(): Promise<string> {
    this.#origin ??= this.#ensure().catch((error: unknown) => {
      this.#origin = undefined
      throw error
    })
    return this.#origin
  }

  /** In a transaction of the user's, if there is one; the tables must be there then. */
  async query(text: string, parameters: readonly Parameter[], runner?: SqlRunner): Promise<readonly Row[]> {
    if (runner === undefined) await this.origin()
    return typedStep(() => (runner ?? this.#database).query(text, parameters))
  }

  async #ensure(): Promise<string> {
    const { origin } = await typedStep(() =>
      this.#database.transaction((tx) =>
        ensureTables(tx, this.#part, this.#schema, { create: this.#create }),
      ),
    )
    return origin
  }
}
