/** A client's session: its steps are applied within the call itself. */

import type { Asker } from '../../kit/lane.ts'
import type { SessionFacts } from '../../kit/session.ts'
import { type Done, StepSession, type StepWork } from '../../kit/step-session.ts'
import type { Call } from '../../spi.ts'
import type { Connection } from './backend.ts'
import type { Session } from './state.ts'

export class MemorySession extends StepSession<Session> {
  protected readonly clock
  protected readonly lifetime
  protected readonly room
  readonly #engine

  constructor({ engine, clock, lifetime, room }: Connection, owner: Session, facts: SessionFacts) {
    super(owner, facts)
    this.#engine = engine
    this.clock = clock
    this.lifetime = lifetime
    this.room = room
    owner.rooms.add(room)
  }

  protected async step<T>(call: Call, work: StepWork<Session, T>): Promise<T> {
    this.lifetime.begin(call)
    return this.#engine.step(work)
  }

  protected prolong<T>(call: Call, work: StepWork<Session, T>): Promise<T> {
    return this.step(call, work)
  }

  protected send<T>(_call: Call, work: StepWork<Session, T>, asker: Asker<Done<T>>): void {
    let value: T
    try {
      value = this.#engine.step(work)
    } catch (error) {
      asker.failed(error)
      return
    }
    asker.answered({ value })
  }
}
