/** One sentence for operators that says what is going on with a name, from what `inspect` has shown. */
import { quote } from '../base/errors.ts'
import type { HolderState, NameState } from '../base/types.ts'

const FREE = 'Free: nobody holds it and nobody waits.'

/** `Held by "api-1" for 12 s, renewing; 3 wait.` Null, as `inspect` returns it, is a name that nobody uses. */
export function explainName(state: NameState | null): string {
  if (state === null) return FREE
  const { capacity, holders, waiters, closedForMs } = state
  const [first] = waiters
  const waiting =
    first === undefined ? '' : `; ${waiters.length} wait, the first for ${inWords(first.waitingForMs)}`
  if (holders.length > 0) return `${holding(holders, capacity)}${waiting}.`
  const cause = 'a lock-delay or a hold-at-least; the engine does not say which'
  if (closedForMs === undefined)
    return `Nobody holds it, but it may be closed by ${cause}, nor for how long${waiting}.`
  if (closedForMs > 0) return `Closed for ${inWords(closedForMs)} more by ${cause}${waiting}.`
  if (first !== undefined) return `Nobody holds it${waiting}.`
  return state.data === undefined ? FREE : `${FREE} The last holder has left data.`
}

function holding(holders: readonly HolderState[], capacity: number | undefined): string {
  const [only] = holders
  if (capacity === undefined && only !== undefined && holders.length === 1) {
    const mode = only.mode === 'shared' ? 'Shared by one reader, ' : 'Held by '
    return `${mode}${quote(only.holder)} for ${inWords(only.heldForMs)}, ${renewal(only)}`
  }
  const permits = holders.reduce((sum, { weight = 1 }) => sum + weight, 0)
  const what =
    capacity === undefined
      ? `Shared by ${holders.length} readers`
      : `${permits} of ${capacity} permits are held, by ${holders.length === 1 ? 'one holder' : `${holders.length} holders`}`
  const late = holders.filter((holder) => (notRenewedForMs(holder) ?? 0) > 0).length
  if (late > 0) return `${what}, of which ${late} ${late === 1 ? 'does' : 'do'} not renew`
  const isKnown = holders.every((holder) => notRenewedForMs(holder) !== null)
  return `${what}, ${isKnown ? 'renewing' : 'renewal unknown'}`
}

function renewal(holder: HolderState): string {
  if (holder.expiresInMs === Infinity) return 'without an end'
  const lateMs = notRenewedForMs(holder)
  if (lateMs === null) return 'renewal unknown'
  if (lateMs === 0) return 'renewing'
  return `not renewed for ${inWords(lateMs)}; its time is over in ${inWords(holder.expiresInMs ?? 0)}`
}

/** 0: it renews. A holder renews every third of its TTL, so after half of it a renewal is missing. Null: the engine cannot tell. */
function notRenewedForMs({ ttlMs, expiresInMs }: HolderState): number | null {
  // Another client's lock has an end, and no TTL that is known.
  if (expiresInMs === undefined || ttlMs === 0 || expiresInMs === Infinity) return null
  return expiresInMs < ttlMs / 2 ? ttlMs - expiresInMs : 0
}

function inWords(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} days`
}
