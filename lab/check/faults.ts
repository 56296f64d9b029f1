/** When which process could not act, and when the engine could not. */
import type { FaultEvent, History } from './history.ts'

export interface Span {
  readonly from: number
  readonly until: number
}

export class Faults {
  readonly #ofProcess = new Map<string, Span[]>()
  readonly outages: readonly Span[]

  constructor(history: History) {
    const outages: Span[] = []
    const open = new Map<string, FaultEvent>()
    const close = (began: FaultEvent, until: number) =>
      this.#list(began, outages).push({ from: began.at, until })
    for (const fault of history.faults) {
      const key = JSON.stringify([fault.what, fault.process])
      const began = open.get(key)
      if (fault.phase === 'began') {
        if (began === undefined) open.set(key, fault)
      } else if (began !== undefined) {
        open.delete(key)
        close(began, fault.at)
      }
    }
    for (const began of open.values()) close(began, Infinity)
    this.outages = outages
  }

  /** When the process was dead, stopped or cut off. */
  of(process: string): readonly Span[] {
    return this.#ofProcess.get(process) ?? []
  }

  wereAt(process: string, time: number): boolean {
    return this.of(process).some(({ from, until }) => from <= time && time < until)
  }

  #list({ process }: FaultEvent, outages: Span[]): Span[] {
    if (process === undefined) return outages
    const spans = this.#ofProcess.get(process) ?? []
    this.#ofProcess.set(process, spans)
    return spans
  }
}

/** The rest of a span when others are cut out of it. */
export function without(span: Span, holes: readonly Span[]): Span[] {
  let left: Span[] = [span]
  for (const hole of holes) {
    if (hole.until <= span.from || hole.from >= span.until) continue
    left = left
      .flatMap(({ from, until }) => [
        { from, until: Math.min(until, hole.from) },
        { from: Math.max(from, hole.until), until },
      ])
      .filter(({ from, until }) => from < until)
  }
  return left
}
