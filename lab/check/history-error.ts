/** A history that cannot be believed: malformed, or in contradiction with itself. */
export class HistoryError extends Error {
  override readonly name = 'HistoryError'
  readonly code: 'MALFORMED' | 'CONTRADICTORY'
  /** Counted from 1; null for events that never were lines. */
  readonly line: number | null

  constructor(code: 'MALFORMED' | 'CONTRADICTORY', line: number | null, message: string) {
    super(line === null ? message : `line ${line}: ${message}`)
    this.code = code
    this.line = line
  }
}
