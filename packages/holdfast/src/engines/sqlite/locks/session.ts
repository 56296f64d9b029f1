/** A client's session: its steps leave through the writer, many in one transaction. */
import type { Asker } from '../../../kit/lane.ts'
import type { SessionFacts } from '../../../kit/session.ts'
import { type Done, StepSession, type StepWork } from '../../../kit/step-session.ts'
import type { Call } from '../../../spi.ts'
import type { Connection } from './connection.ts'
import type { Owner } from './transaction.ts'

export class SqliteSession extends StepSession<Owner> {
  protected readonly clock
  protected readonly lifetime
  protected readonly room
  readonly #connection: Connection

  /** `no`: the number of its row. */
  constructor(connection: Connection, no: number, facts: SessionFacts) {
    const { namespace, wakeUps } = connection
    super({ namespace, id: no, address: () => wakeUps.address() }, facts)
    this.#connection = connection
    this.clock = connection.clock
    this.lifetime = connection.lifetime
    this.room = connection.room
  }

  protected step<T>(call: Call, work: StepWork<Owner, T>): Promise<T> {
    return this.#connection.write(call, work)
  }

  protected prolong<T>(call: Call, work: StepWork<Owner, T>): Promise<T> {
    return this.#connection.prolong(call, work)
  }

  protected send<T>(call: Call, work: StepWork<Owner, T>, asker: Asker<Done<T>>): void {
    this.#connection.writer.send(call, work, asker)
  }
}
