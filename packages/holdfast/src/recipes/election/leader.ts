/** Who leads: what is shown of a leader, the value that it proclaimed, and the stream of changes. */
import { sleep } from '../../base/clock.ts'
import { InvalidArgumentError, isHoldfastError } from '../../base/errors.ts'
import { tokensAsText } from '../../base/tokens-as-text.ts'
import type { CallOptions, Fencing, LeaseBase, Locker } from '../../base/types.ts'

/** `JSON.stringify` writes its token as text. */
export interface Leader<F extends Fencing = Fencing> {
  /** The id of its lease: another one, even of the same process, is another term. */
  readonly id: string
  /** The public label of its locker. */
  readonly holder: string
  readonly owner?: string
  readonly token: F extends 'fenced' ? bigint : null
  /** What it proclaimed in this term; undefined if it has not. */
  readonly value: unknown
}

/** What is stored. The id tells whose value it is: the cell outlives the lease. */
interface Proclamation {
  readonly id: string
  readonly value: unknown
}

export async function proclaim(lease: LeaseBase, value: unknown, options?: CallOptions): Promise<void> {
  await lease.setData(asJson({ id: lease.id, value }), options)
}

function asJson(proclamation: Proclamation): string {
  if (proclamation.value === undefined)
    throw new InvalidArgumentError('value', 'must not be undefined, which JSON cannot say.')
  try {
    return JSON.stringify(proclamation)
  } catch (error) {
    throw new InvalidArgumentError('value', `must be what JSON can say: ${(error as Error).message}.`, {
      cause: error,
    })
  }
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

/**
 * It looks once after a gap, and after that lives by events, so that a change costs no read for each observer. Only a
 * proclaimed value is read, because its event does not carry it.
 */
export async function* observeLeaders<F extends Fencing>(
  locker: Locker<F>,
  name: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<Leader<F> | null> {
  const call: CallOptions = signal === undefined ? {} : { signal }
  let told: Leader<F> | null | undefined
  while (!signal?.aborted) {
    /** The leader that the look found. Events that come before its own are older than the look. */
    let found: string | undefined
    try {
      for await (const event of locker.watch(name, { cursor: FROM_NOW, ...call })) {
        let now = told ?? null
        if (event.kind === 'gap') {
          now = await currentLeader(locker, name, call)
          found = now?.id
        } else {
          const isOfWaiter = event.kind === 'waiting' || event.kind === 'gave-up'
          if (event.name !== name || isOfWaiter || (found !== undefined && event.id !== found)) continue
          found = undefined
          if (event.kind === 'acquired') now = event.id === now?.id ? now : leaderOf<F>(event, undefined)
          else if (event.kind === 'data') {
            const seen = await currentLeader(locker, name, call)
            // If another one leads by now, its own events will tell.
            if (seen?.id === now?.id) now = seen
          } else if (event.id === now?.id) now = null
        }
        if (told !== undefined && isSame(told, now)) continue
        told = now
        yield now
      }
      return
    } catch (error) {
      if (signal?.aborted) return
      if (told === undefined) throw error
      if (isHoldfastError(error, 'CLOSED')) return
      if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE')) throw error
    }
    await sleep(locker.clock, PAUSE_MS, { ...call, keepsProcessAlive: true }).catch(() => {})
  }
}

function isSame(a: Leader | null, b: Leader | null): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b)
}
