/** Hand-made histories, short to write: who did what from when to when. Equal times keep the order of writing. */
import { assemble } from '../assemble.ts'
import type {
  About,
  EngineEventKind,
  FaultEvent,
  GuardEvent,
  History,
  HistoryEvent,
  InvokeEvent,
  OperationKind,
  Outcome,
  ReturnEvent,
} from '../history.ts'
import type { NewEvent } from '../recorder.ts'

type Given = Partial<Omit<InvokeEvent, 'kind' | 'seq' | 'at' | 'process' | 'op'>> &
  Partial<Pick<ReturnEvent, 'count' | 'error'>> & { readonly outcome?: Outcome }

type Believed = Partial<Omit<Extract<HistoryEvent, { what: 'began' }>, 'kind' | 'what' | 'seq' | 'at'>> & {
  /** When it ended; it was released then, unless `reason` says otherwise. Default: it was not recorded. */
  readonly until?: number
  readonly reason?: string
  readonly noticedAt?: number
}

type WithoutStamp = HistoryEvent extends infer E ? (E extends unknown ? Omit<E, 'seq' | 'at'> : never) : never

export class Story {
  readonly #about: About
  readonly #told: { readonly at: number; readonly event: WithoutStamp }[] = []
  #operations = 0

  constructor(about: Omit<About, 'kind' | 'version'> = {}) {
    this.#about = { kind: 'about', version: 1, ...about }
  }

  /** Without an end it is pending. The name is "n" and the lease has the process's name in small letters. */
  op(process: string, op: OperationKind, from: number, to: number | null, given: Given = {}): this {
    const { id = `op${++this.#operations}`, outcome = 'ok', count, error, token, ...asked } = given
    const aimed = op !== 'acquire' && token !== undefined ? { token } : {}
    const leaseId = op === 'force-release' || op === 'close' ? {} : { leaseId: process.toLowerCase() }
    const name = op === 'close' ? {} : { name: 'n' }
    this.#tell(from, { kind: 'invoke', id, process, op, ...name, ...leaseId, ...aimed, ...asked })
    if (to === null) return this
    const learnt = op === 'acquire' && token !== undefined ? { token } : {}
    const answer = {
      ...learnt,
      ...(count === undefined ? {} : { count }),
      ...(error === undefined ? {} : { error }),
    }
    return this.#tell(to, { kind: 'return', id, outcome, ...answer })
  }

  /** With a TTL of 100. */
  acquire(process: string, from: number, to: number | null, given: Given = {}): this {
    return this.op(process, 'acquire', from, to, { ttlMs: 100, ...given })
  }

  release(process: string, from: number, to: number | null, given: Given = {}): this {
    return this.op(process, 'release', from, to, given)
  }

  /** A belief that counts from when it began, with a TTL of 100, unless said otherwise. */
  believes(process: string, at: number, given: Believed = {}): this {
    const { until, reason, noticedAt, ...fields } = given
    const leaseId = fields.leaseId ?? process.toLowerCase()
    this.#tell(at, {
      kind: 'belief',
      what: 'began',
      process,
      name: 'n',
      sentAt: at,
      ttlMs: 100,
      ...fields,
      leaseId,
    })
    if (until === undefined) return this
    const why = reason === undefined ? ({ why: 'released' } as const) : ({ why: 'lost', reason } as const)
    const noticed = noticedAt === undefined ? {} : { believedUntil: until }
    return this.#tell(noticedAt ?? until, { kind: 'belief', what: 'ended', leaseId, ...why, ...noticed })
  }

  engine(
    at: number,
    what: EngineEventKind,
    leaseId: string,
    given: Partial<Extract<HistoryEvent, { kind: 'engine' }>> = {},
  ): this {
    return this.#tell(at, { kind: 'engine', what, name: 'n', leaseId, ...given })
  }

  guard(
    at: number,
    verdict: GuardEvent['verdict'],
    leaseId: string,
    token: bigint,
    given: Partial<GuardEvent> = {},
  ): this {
    return this.#tell(at, { kind: 'guard', guard: 'g', name: 'n', verdict, leaseId, token, ...given })
  }

  /** From `from` to `to`, or for good. Without a process it concerns the engine. */
  fault(what: FaultEvent['what'], from: number, to: number | null, process?: string): this {
    const whose = process === undefined ? {} : { process }
    this.#tell(from, { kind: 'fault', what, phase: 'began', ...whose })
    return to === null ? this : this.#tell(to, { kind: 'fault', what, phase: 'ended', ...whose })
  }

  event(at: number, event: NewEvent): this {
    return this.#tell(at, event)
  }

  events(): HistoryEvent[] {
    return this.#told
      .toSorted((one, other) => one.at - other.at)
      .map(({ at, event }, index) => ({ ...event, seq: index + 1, at }) as HistoryEvent)
  }

  history(): History {
    return assemble(this.#about, this.events())
  }

  #tell(at: number, event: WithoutStamp): this {
    this.#told.push({ at, event })
    return this
  }
}
