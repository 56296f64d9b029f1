/** The engine as a process that clients reach over the network. */
import { type Later, Server, type ServerOptions } from '../server.ts'
import { type EngineObserver, SimEngine } from './engine.ts'
import type { EngineAnswer, EnginePush, EngineRequest } from './messages.ts'

export interface EngineServerOptions extends ServerOptions {
  /** How fast the engine's clock runs. */
  readonly rate: number
  readonly grantTtl: (askedMs: number) => number
  readonly lateByMs: () => number
  readonly observer: EngineObserver
  /** Hands a push to the network. */
  readonly push: (address: string, push: EnginePush) => void
}

/** Tells the trace what the server does. */
export type Reply = (answers: readonly EngineAnswer[]) => void

export class EngineServer extends Server {
  readonly engine: SimEngine
  readonly #rate: number
  #later: Later | undefined

  constructor(options: EngineServerOptions) {
    super(options)
    this.#rate = options.rate
    this.engine = new SimEngine({
      journal: this.journal,
      observer: options.observer,
      grantTtl: options.grantTtl,
      lateByMs: options.lateByMs,
      push: (address, push) => this.#later?.(() => options.push(address, push)),
      wakeAt: (atMs) =>
        void this.scheduler.at(atMs / this.#rate + 0.001, () => this.receive(() => this.#wake())),
    })
  }

  /** The engine's own clock, which goes on while it is frozen or down. */
  get nowMs(): number {
    return this.scheduler.nowMs * this.#rate
  }

  /** A batch is one step: all of it is durable, or nothing. */
  handle(requests: readonly EngineRequest[], address: string, reply: Reply, onLost: () => void): void {
    this.#step((later) => {
      const answers = requests.map((request) => this.engine.step(request, address, this.nowMs))
      if (answers.some(({ kind }) => kind === 'granted')) this.acted()
      later(() => reply(answers), onLost)
    })
  }

  /** An act that no client asked for: an operator's, or a fault's. */
  act<T>(act: (engine: SimEngine, nowMs: number) => T): T {
    return this.#step(() => act(this.engine, this.nowMs))
  }

  crashFor(forMs: number): void {
    this.crash(
      forMs,
      () => this.engine.crash(),
      () => this.#wake(),
    )
  }

  freezeEngine(forMs: number): void {
    this.freeze(forMs, () => this.#wake())
  }

  #wake(): void {
    this.#step(() => this.engine.expireDue(this.nowMs))
  }

  #step<T>(body: (later: Later) => T): T {
    return this.step((later) => {
      this.#later = later
      return body(later)
    })
  }
}
