/** How names stand in keys: in braces, so that they are the hash tag of the key, and without braces of their own. */
import { createHash } from 'node:crypto'

const special = /[%{}]/

/** The percent sign too, so that the escape can be told from a name that contains it. */
export function escapeBraces(text: string): string {
  return special.test(text) ? text.replace(/[%{}]/g, (char) => `%${char.charCodeAt(0).toString(16)}`) : text
}

export function unescapeBraces(text: string): string {
  return text.replace(/%(25|7b|7d)/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
}

/** For the pattern of a SCAN that means exactly this text. */
export function escapeGlob(text: string): string {
  return text.replace(/[*?[\]\\^-]/g, '\\$&')
}

/**
 * The id of a holder that took the key with another client: a digest of the value that it stored, so that an operator's
 * call is bound to that holder and not to the next one (T78). The same as `redis.sha1hex` in a script.
 */
export function foreignId(value: string): string {
  return `foreign:${createHash('sha1').update(value).digest('hex')}`
}
