/** Durations as they are written on the command line: `500ms`, `30s`, `5m`, `2h`, `1d`, `0`. */
const units: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Undefined: the text is no duration. */
export function durationMs(text: string): number | undefined {
  if (text === '0') return 0
  const [, amount, unit = ''] = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)$/.exec(text) ?? []
  return amount === undefined ? undefined : Math.round(Number(amount) * (units[unit] ?? 0))
}

/** For people: `850 ms`, `12 s`, `3 min`. */
export function inWords(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  const seconds = Math.round(ms / 1_000)
  if (seconds < 120) return `${seconds} s`
  const minutes = Math.round(seconds / 60)
  return minutes < 120 ? `${minutes} min` : `${Math.round(minutes / 60)} h`
}
