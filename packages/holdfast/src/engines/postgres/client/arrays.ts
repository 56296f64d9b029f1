/**
 * Arrays as text, to be cast in the statement (`$1::text::text[]`). The clients have ways of their own to send arrays,
 * which depend on their settings; text goes through both unchanged.
 */
export function arrayLiteral(values: readonly (string | number | boolean | null | undefined)[]): string {
  return `{${values.map(elementOf).join(',')}}`
}

function elementOf(value: string | number | boolean | null | undefined): string {
  if (value === null || value === undefined) return 'NULL'
  if (typeof value !== 'string') return String(value)
  return `"${/["\\]/.test(value) ? value.replaceAll('\\', '\\\\').replaceAll('"', '\\"') : value}"`
}
