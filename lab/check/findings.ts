/** A checker's findings: what is wrong, how much it has judged, and what it could not judge, and why. */
import type { Operation, Stamp } from './history.ts'

export const checkIds = [
  'G1',
  'G2',
  'G3',
  'G5',
  'G6',
  'G7',
  'G8',
  'G10',
  'G13',
  'lost-updates',
  'linearizability',
] as const

export type CheckId = (typeof checkIds)[number]

export interface Violation {
  readonly check: CheckId
  /** The name or the resource that it is about. */
  readonly name: string
  /** In sentences, with the operations and their times. */
  readonly message: string
  /** The operations, leases or attempts that are involved. */
  readonly involved: readonly string[]
}

export interface Finding {
  readonly check: CheckId
  readonly violations: readonly Violation[]
  /** How many things were compared. Zero means that nothing was judged, which is not "ok". */
  readonly judged: number
  /** Reasons for which something could not be judged, each with how often. */
  readonly notJudged: readonly { readonly why: string; readonly times: number }[]
}

export class Findings {
  readonly #check: CheckId
  readonly #violations: Violation[] = []
  readonly #open = new Map<string, number>()
  #judged = 0

  constructor(check: CheckId) {
    this.#check = check
  }

  judged(times = 1): void {
    this.#judged += times
  }

  violated(name: string, message: string, involved: readonly (string | undefined)[]): void {
    const known = involved.filter((each) => each !== undefined)
    this.#violations.push({ check: this.#check, name, message, involved: [...new Set(known)] })
  }

  leaveOpen(why: string, times = 1): void {
    this.#open.set(why, (this.#open.get(why) ?? 0) + times)
  }

  done(): Finding {
    return {
      check: this.#check,
      violations: this.#violations,
      judged: this.#judged,
      notJudged: [...this.#open].map(([why, times]) => ({ why, times })),
    }
  }
}

export function describeOperation(operation: Operation): string {
  const { process, op, name, outcome, token, leaseId } = operation
  const facts = [
    outcome === 'unknown' && operation.returnedAt === Infinity ? 'pending' : outcome,
    ...(token === undefined ? [] : [`token ${token}`]),
    ...(leaseId === undefined ? [] : [`lease ${leaseId}`]),
  ]
  const where = name === '' ? '' : ` ${JSON.stringify(name)}`
  return `${process} ${op}${where} [${ms(operation.at)}–${ms(operation.returnedAt)}] (${facts.join(', ')})`
}

export function ms(time: number): string {
  return Number.isFinite(time) ? `${Number(time.toFixed(6))} ms` : '…'
}

export function at(stamp: Stamp): string {
  return `at ${ms(stamp.at)}`
}
