/** Incidents that the harness caused to clients, servers and network, and when: for the report, and for the judge. */
import type { Note } from './messages.ts'
import { nowMs } from './observer.ts'

export interface Incident {
  /**
   * The first three keep a client from acting. Who is `deaf` still acts: its keep-alives are heard, and prolong what it holds,
   * until it stops believing. `assumption`: what the engine assumes was made untrue, in a moment.
   */
  readonly what: 'pause' | 'cut-off' | 'outage' | 'deaf' | 'assumption'
  /** Without one, it happened to the engine. */
  readonly client?: string
  /** For people: `stopped`, `cut off (one-way)`. */
  readonly how: string
  readonly from: number
  until: number
}

export class Incidents {
  readonly all: Incident[] = []

  begin(incident: Omit<Incident, 'from' | 'until'>, from = nowMs()): Incident {
    const begun = { ...incident, from, until: Infinity }
    this.all.push(begun)
    return begun
  }

  end(incident: Incident): void {
    incident.until = nowMs()
  }

  /** Something that has no duration. `from`: just before it was done. */
  add(how: string, from: number): void {
    this.all.push({ what: 'assumption', how, from, until: nowMs() })
  }

  notes(): Note[] {
    return this.all.flatMap(({ what, client, from, until }) => {
      if (what === 'deaf' || what === 'assumption') return []
      const facts = { kind: 'fault', what, ...(client !== undefined && { process: client }) } as const
      return [
        { ...facts, phase: 'began', at: from } as const,
        ...(until < Infinity ? [{ ...facts, phase: 'ended', at: until } as const] : []),
      ]
    })
  }
}
