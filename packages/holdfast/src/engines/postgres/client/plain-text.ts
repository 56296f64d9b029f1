/**
 * Values that are text to the server, sent through postgres.js as `pg` sends them.
 *
 * By itself postgres.js writes a value as the type that the server has found for its position wants it: for `jsonb` it turns
 * text into JSON, also text that is JSON already, which `pg` leaves as it is. A value whose type is said to be unknown is
 * left alone, and the server makes of it whatever its position needs, as it does with every value of `pg`.
 */
import type { Parameter, PostgresJsRunner } from './types.ts'

/** The number of the type `unknown`. */
const UNKNOWN = 705

/** True for values that both clients send as the same text. */
export function isPlain(value: unknown): value is Parameter | bigint {
  return value === null || ['string', 'number', 'boolean', 'bigint'].includes(typeof value)
}

interface Types {
  readonly typed?: (value: string, type: number) => Parameter
}

/** Values that are not plain stay as they are, and postgres.js knows what to do with them. */
export function asPlainText(sql: PostgresJsRunner, parameters: readonly Parameter[]): Parameter[] {
  const types = sql as Types
  const { typed } = types
  if (typeof typed !== 'function') return [...parameters]
  return parameters.map((value) =>
    value === null || !isPlain(value) ? value : typed.call(types, String(value), UNKNOWN),
  )
}
