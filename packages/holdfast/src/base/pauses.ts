/** The pause after so many tries, counted from 0: 10, 20, 40 … ms for `{ firstMs: 10, longestMs: 2_000 }`, and 2 s in the end. */
export function growingPauseMs(tries: number, { firstMs, longestMs }: PauseRange): number {
  return Math.min(longestMs, firstMs * 2 ** tries)
}

export interface PauseRange {
  readonly firstMs: number
  readonly longestMs: number
}
