/**
 * Signals to `holdfast`. Before there is a command they end the wait; while there is one they are its.
 *
 *   waiting ──a signal──▶ cancelled   `cancelled` aborts; the command is never started
 *   waiting ──[pass]────▶ passing     each signal goes to the command
 *   cancelled ──another, a second later──▶ the process ends at once
 *
 * One Ctrl-C may come twice, from the kernel and from `npx`: the second one must not keep us from taking back what we asked for
 * (consul#4439).
 *
 * SIGTERM, SIGINT and SIGQUIT ask for an end, also when they were the command's: an election does not campaign again after one.
 */
import { constants } from 'node:os'
import { type Clock, systemClock } from 'holdfast'
import { EXIT, Exit } from './exits.ts'

const handled = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const
type Handled = (typeof handled)[number]

const asksForEnd: readonly string[] = ['SIGTERM', 'SIGINT', 'SIGQUIT']

/** The kernel sends these to the whole foreground group: a command in it gets them without our doing. */
const fromTerminal: readonly string[] = ['SIGINT', 'SIGQUIT']

const PATIENCE_MS = 1_000

export class Signals {
  readonly #controller = new AbortController()
  readonly #clock: Clock
  #cancelledAtMs = 0
  #asked: Handled | undefined
  #target: ((signal: Handled) => void) | undefined

  constructor(clock: Clock = systemClock) {
    this.#clock = clock
    for (const signal of handled) process.on(signal, () => this.#receive(signal))
  }

  /** Aborts with the `Exit` that the program ends with. */
  get cancelled(): AbortSignal {
    return this.#controller.signal
  }

  /** `work`, unless a signal has come or comes first; it is on its own then. */
  unlessCancelled<T>(work: Promise<T>): Promise<T> {
    const { cancelled } = this
    return new Promise((resolve, reject) => {
      const end = () => reject(cancelled.reason)
      if (cancelled.aborted) end()
      cancelled.addEventListener('abort', end, { once: true })
      work.then(resolve, reject)
    })
  }

  /** From now on signals go to the command; call the result when it has ended. */
  pass(target: (signal: Handled) => void, hasTerminal: boolean): () => void {
    this.#target = (signal) => {
      if (!hasTerminal || !fromTerminal.includes(signal)) target(signal)
    }
    return () => {
      this.#target = undefined
    }
  }

  /** After a command has ended: what would start another one ends, if a signal has asked for it. */
  cancelIfAsked(): void {
    if (this.#asked !== undefined) this.#cancel(this.#asked)
  }

  #receive(signal: Handled): void {
    if (asksForEnd.includes(signal)) this.#asked = signal
    if (this.#target !== undefined) this.#target(signal)
    else if (!this.cancelled.aborted) this.#cancel(signal)
    else if (this.#clock.monotonicMs() - this.#cancelledAtMs >= PATIENCE_MS) process.exit(signalExit(signal))
  }

  #cancel(signal: Handled): void {
    this.#cancelledAtMs = this.#clock.monotonicMs()
    this.#controller.abort(new Exit(signalExit(signal)))
  }
}

export function signalExit(signal: NodeJS.Signals): number {
  return EXIT.signalled + (constants.signals[signal] ?? 0)
}
