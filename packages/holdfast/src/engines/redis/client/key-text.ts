/** How names stand in keys: in braces, so that they are the hash tag of the key, and without braces of their own. */
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
