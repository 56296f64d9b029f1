/** The current leader, the value that it proclaimed, and the stream of changes. */
import { onAborted } from '../../base/aborting.ts'
import { pause, type Timer } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { InvalidArgumentError, isHoldfastError } from '../../base/errors.ts'
import { tokensAsText } from '../../base/tokens-as-text.ts'
import type { CallOptions, Fencing, LeaseBase, Locker } from '../../base/types.ts'

type WatchEvent = ReturnType<Locker['watch']> extends AsyncIterable<infer E> ? E : never
type LeaseEvent = Exclude<WatchEvent, { readonly kind: 'gap' }>

/** `JSON.stringify` writes the token as text. */
export interface Leader<F extends Fencing = Fencing> {
  /** The id of its lease: another one, even of the same process, is another term. */
  readonly id: string
  /** The public label of its locker. */
  readonly holder: string
  readonly owner?: string
  readonly token: F extends 'fenced' ? bigint : null
  /** The value that it proclaimed in this term; undefined if it has not. */
  readonly value: unknown
}

/** The stored proclamation. The id tells whose value it is: the cell outlives the lease. */
interface Proclamation {
  readonly id: string
  readonly value: unknown
}

export async function proclaim(lease: LeaseBase, value: unknown, options?: CallOptions): Promise<void> {
  await lease.setData(asJson({ id: lease.id, value }), options)
}

function asJson(proclamation: Proclamation): string {
  try {
    // JSON leaves out what it cannot express.
    if (JSON.stringify(proclamation.value) !== undefined) return JSON.stringify(proclamation)
  } catch (error) {
    throw new InvalidArgumentError(
      'value',
      `must be a value that JSON can express: ${(error as Error).message}.`,
      {
        cause: error,
      },
    )
  }
  throw new InvalidArgumentError(
    'value',
    'must not be undefined, a function or a symbol, which JSON cannot express.',
  )
}

export async function currentLeader<F extends Fencing>(
  locker: Locker<F>,
  name: string,
  options?: CallOptions,
): Promise<Leader<F> | null> {
  const state = await locker.inspect(name, options)
  const holder = state?.holders[0]
  return holder === undefined ? null : leaderOf<F>(holder, proclaimedBy(state?.data, holder.id))
}

/** Undefined for a value of an earlier leader, and for data that is not a proclamation. */
function proclaimedBy(data: string | undefined, id: string): unknown {
  try {
    const proclamation = JSON.parse(data ?? 'null') as Partial<Proclamation> | null
    return proclamation?.id === id ? proclamation.value : undefined
  } catch {
    // Text of a program that uses the name for something else.
    return undefined
  }
}

function leaderOf<F extends Fencing>(
  held: {
    readonly id: string
    readonly holder: string
    readonly owner?: string
    readonly token: bigint | null
  },
  value: unknown,
): Leader<F> {
  const { id, holder, owner } = held
  const token = held.token as Leader<F>['token']
  return tokensAsText({ id, holder, ...(owner !== undefined && { owner }), token, value })
}

/** No engine hands this out as a cursor: it answers with a gap, from which on no event is missing. */
const FROM_NOW = 'election'
const PAUSE_MS = 500
/** Where core compares lists, a leader of less than one interval has no events. */
const CONFIRM_WITHIN_MS = 2 * defaults.watchIntervalMs

/**
 * It looks after a gap, and then follows the events, so that a change costs no read for each observer. Only a proclaimed
 * value is read, because its event does not carry it.
 *
 *   watch ──gap──▶ look ──it finds a leader───▶ in doubt    events that are older than the look are left out
 *   in doubt ──an event of that leader──▶ following         from here on the events are newer than the look
 *   in doubt ──too long──▶ watch
 */
class LeaderObserver<F extends Fencing> {
  readonly #locker: Locker<F>
  readonly #name: string
  readonly #signal: AbortSignal | undefined
  #told: Leader<F> | null | undefined
  /** The term that was told last. If it is over, an event that is older than the look must not tell it again. */
  #lastId: string | undefined
  #doubt: { readonly id: string; readonly timer: Timer } | undefined

  constructor(locker: Locker<F>, name: string, signal: AbortSignal | undefined) {
    this.#locker = locker
    this.#name = name
    this.#signal = signal
  }

  async *run(): AsyncGenerator<Leader<F> | null> {
    const { clock } = this.#locker
    const signal = this.#signal
    while (!signal?.aborted) {
      const round = new AbortController()
      const untie = onAborted(signal, () => round.abort())
      try {
        yield* this.#changes(round)
        // The locker is closed.
        if (!round.signal.aborted) return
      } catch (error) {
        if (signal?.aborted) return
        if (this.#told === undefined) throw error
        if (isHoldfastError(error, 'CLOSED')) return
        if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE')) throw error
      } finally {
        untie()
        this.#believe()
      }
      await pause(clock, PAUSE_MS, { signal, keepsProcessAlive: true })
    }
  }

  async *#changes(round: AbortController): AsyncGenerator<Leader<F> | null> {
    const { signal } = round
    for await (const event of this.#locker.watch(this.#name, { cursor: FROM_NOW, signal })) {
      const leader = event.kind === 'gap' ? await this.#look(round) : await this.#after(event, signal)
      if (leader === undefined || (this.#told !== undefined && isSame(this.#told, leader))) continue
      this.#told = leader
      this.#lastId = leader?.id ?? this.#lastId
      yield leader
    }
  }

  async #look(round: AbortController): Promise<Leader<F> | null> {
    const { signal } = round
    this.#believe()
    const found = await currentLeader(this.#locker, this.#name, { signal })
    if (found === null) return null
    const timer = this.#locker.clock.setTimer(CONFIRM_WITHIN_MS, () => round.abort())
    this.#doubt = { id: found.id, timer }
    return found
  }

  #believe(): void {
    this.#doubt?.timer.cancel()
    this.#doubt = undefined
  }

  /** Undefined: nothing new. */
  async #after(event: LeaseEvent, signal: AbortSignal): Promise<Leader<F> | null | undefined> {
    const { kind, id } = event
    if (event.name !== this.#name || kind === 'waiting' || kind === 'gave-up') return undefined
    if (this.#doubt !== undefined && this.#doubt.id !== id) return undefined
    this.#believe()
    const isTold = this.#told?.id === id
    if (kind === 'acquired') return id === this.#lastId ? undefined : leaderOf<F>(event, undefined)
    if (!isTold) return undefined
    if (kind !== 'data') return null
    const seen = await currentLeader(this.#locker, this.#name, { signal })
    // If another one leads by now, its own events will tell.
    return seen?.id === id ? seen : undefined
  }
}

export function observeLeaders<F extends Fencing>(
  locker: Locker<F>,
  name: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<Leader<F> | null> {
  return new LeaderObserver(locker, name, signal).run()
}

function isSame(a: Leader | null, b: Leader | null): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b)
}
